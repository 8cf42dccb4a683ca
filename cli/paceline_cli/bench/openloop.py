"""Offers a schedule to a target and never waits for an answer before the next request (open loop).

A request that starts late is measured, not hidden: its lateness is in the sample. One beyond the cap on open requests
is `not_sent`, which counts against the SLO like any other miss. Times are seconds since the run's start.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise

from paceline_core.clock import Clock


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request to offer at `at`, whatever the result of earlier ones.

    `blocks`: names of a prompt's parts, as a trace has them; equal ones are equal text. None: the prompt is unique.
    """

    number: int
    at: float
    phase: str
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()


class Ending(StrEnum):
    """The end of an offered request, as its client sees it."""

    OK = "ok"
    REFUSED = "refused"
    FAILED = "failed"
    CUT = "cut"
    VIOLATION = "violation"
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"
    NOT_SENT = "not_sent"


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """Token counts of one answer, as the server reported them."""

    prompt_tokens: int
    output_tokens: int


@dataclass(frozen=True, slots=True)
class RequestSample:
    """An offered request. `content` holds the arrival time of every event with text; `detail` says why it failed."""

    arrival: Arrival
    ending: Ending
    sent: float | None = None
    end: float | None = None
    content: tuple[float, ...] = field(default=(), repr=False)
    usage: TokenCounts | None = None
    detail: str = ""

    @property
    def prompt_tokens(self) -> int:
        """The server's count; 0 if it did not report one."""
        return 0 if self.usage is None else self.usage.prompt_tokens

    @property
    def lateness(self) -> float | None:
        """Seconds between the planned and the actual start, caused by the generator."""
        return None if self.sent is None else max(self.sent - self.arrival.at, 0.0)

    @property
    def ttft(self) -> float | None:
        """Request sent (connection included) to the first event with text."""
        return self.content[0] - self.sent if self.content and self.sent is not None else None

    @property
    def tpot(self) -> float | None:
        """(last - first) / (n - 1) with the server's n; None below two tokens."""
        if self.usage is None or self.usage.output_tokens < 2 or not self.content:
            return None
        return (self.content[-1] - self.content[0]) / (self.usage.output_tokens - 1)

    @property
    def e2e(self) -> float | None:
        """Request sent to the last byte of the answer."""
        return self.end - self.sent if self.end is not None and self.sent is not None else None

    @property
    def gaps(self) -> tuple[float, ...]:
        """ITL: gaps between neighbouring events with text; events read together are 0 apart."""
        return tuple(later - earlier for earlier, later in pairwise(self.content))


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """Offers requests: `prepare` makes a request before its time, `send` ends within its own limit."""

    prepare: Callable[[Arrival], bytes]
    send: Callable[[Arrival, bytes], Awaitable[RequestSample]]
    clock: Clock
    in_flight_limit: int = 2000

    async def run(self, arrivals: Iterable[Arrival], start: float) -> list[RequestSample]:
        """Offer all; returns samples in order of arrival with times relative to `start` (the clock's monotonic)."""
        samples: list[RequestSample] = []
        tasks: set[asyncio.Task[None]] = set()

        async def offer(arrival: Arrival, request: bytes) -> None:
            sample = await self.send(arrival, request)
            samples.append(
                replace(
                    sample,
                    sent=None if sample.sent is None else sample.sent - start,
                    end=None if sample.end is None else sample.end - start,
                    content=tuple(moment - start for moment in sample.content),
                )
            )

        async with asyncio.TaskGroup() as group:
            for arrival in arrivals:
                request = self.prepare(arrival)
                await self.clock.sleep(max(start + arrival.at - self.clock.monotonic(), 0.0))
                if len(tasks) >= self.in_flight_limit:
                    detail = f"{self.in_flight_limit} requests were already open"
                    samples.append(RequestSample(arrival, Ending.NOT_SENT, detail=detail))
                    continue
                task = group.create_task(offer(arrival, request))
                tasks.add(task)
                task.add_done_callback(tasks.discard)
        return sorted(samples, key=lambda sample: sample.arrival.number)
