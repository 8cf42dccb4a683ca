"""Offer a schedule to a target and never wait for an answer before the next request (open loop).

A request that starts late is measured, not hidden: its lateness is in the sample. One that would exceed the cap on open
requests is `not_sent`, which counts against the promise like any other miss.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace

from paceline_cli.bench.samples import Arrival, Ending, RequestSample
from paceline_core.clock import Clock

Send = Callable[[Arrival, bytes], Awaitable[RequestSample]]
Prepare = Callable[[Arrival], bytes]


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """How to offer: `prepare` makes a request ahead of its time, `send` ends within a limit of its own."""

    prepare: Prepare
    send: Send
    clock: Clock
    in_flight_limit: int = 2000

    async def run(self, arrivals: Iterable[Arrival], start: float) -> list[RequestSample]:
        """Offer all; samples in order of arrival with times relative to `start` (the clock's monotonic)."""
        samples: list[RequestSample] = []
        tasks: set[asyncio.Task[None]] = set()
        async with asyncio.TaskGroup() as group:
            for arrival in arrivals:
                request = self.prepare(arrival)
                await self._until(start + arrival.at)
                if len(tasks) >= self.in_flight_limit:
                    samples.append(self._not_sent(arrival))
                    continue
                task = group.create_task(self._offer(arrival, request, start, samples))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        return sorted(samples, key=lambda sample: sample.arrival.number)

    async def _offer(self, arrival: Arrival, request: bytes, start: float, samples: list[RequestSample]) -> None:
        samples.append(relative(await self.send(arrival, request), start))

    async def _until(self, moment: float) -> None:
        await self.clock.sleep(max(moment - self.clock.monotonic(), 0.0))

    def _not_sent(self, arrival: Arrival) -> RequestSample:
        return RequestSample(arrival, Ending.NOT_SENT, detail=f"{self.in_flight_limit} requests were already open")


def relative(sample: RequestSample, start: float) -> RequestSample:
    """The same sample with its clock times counted from `start`."""
    return replace(
        sample,
        sent=None if sample.sent is None else sample.sent - start,
        end=None if sample.end is None else sample.end - start,
        content=tuple(moment - start for moment in sample.content),
    )
