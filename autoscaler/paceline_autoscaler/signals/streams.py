"""Long-lived streams of messages, one a source. What counts is the last line of each and when it came; `fresh` leaves
out who is silent."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from paceline_core.tasks import cancel
from paceline_core.wire import Message
from paceline_core.wire.stream import StreamClient, StreamSource, subscribe

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Received(Generic[M]):
    """A line, and the monotonic time at which it came."""

    message: M
    at: float


class ReportStreams(Generic[M]):
    """One stream for each place. `on_line` is called on the event loop for every line, in order.

    A line that it refuses with InvalidInput counts for nothing, and breaks the stream.
    """

    def __init__(self, kind: type[M], link: StreamClient, on_line: Callable[[StreamSource, M], None]) -> None:
        self._kind = kind
        self._link = link
        self._on_line = on_line
        self._tasks: dict[StreamSource, asyncio.Task[None]] = {}
        self.heard: dict[str, Received[M]] = {}

    def follow(self, places: Iterable[StreamSource]) -> None:
        """These are the places now: open what is missing, close and forget what is gone."""
        wanted = set(places)
        for place in [place for place in self._tasks if place not in wanted]:
            self._tasks.pop(place).cancel()
            self.heard.pop(place.name, None)
        for place in wanted - self._tasks.keys():
            self._tasks[place] = asyncio.create_task(self._read(place), name=f"stream {place.name}")

    def fresh(self, silence_s: float) -> Mapping[str, M]:
        """The last line of each place that is not silent."""
        oldest = self._link.clock.monotonic() - silence_s
        return {name: heard.message for name, heard in self.heard.items() if heard.at >= oldest}

    async def close(self) -> None:
        """Close every stream."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        await cancel(*tasks)

    async def _read(self, place: StreamSource) -> None:
        def heard(message: M) -> None:
            self._on_line(place, message)
            self.heard[place.name] = Received(message, self._link.clock.monotonic())

        await subscribe(self._kind, place, self._link, heard, lambda _refused: None)
