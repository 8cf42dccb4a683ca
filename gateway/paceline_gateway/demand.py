"""`GET /internal/demand`: what this gateway is asked for, as lines for the autoscaler; once a second, and at once
when a request starts to be held, so that a service at zero wakes without waiting for the next line.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator

from paceline_core.registry import RequestClass
from paceline_core.wire import ClassDemand, DemandReport, ServiceDemand, encode
from paceline_gateway.desk import Desk

PERIOD_S = 1.0
SUBSCRIBERS = 16


class Bell:
    """Wakes every reader of the demand stream."""

    def __init__(self) -> None:
        self._readers: set[asyncio.Event] = set()
        self.closed = False

    @property
    def readers(self) -> int:
        """How many streams are open."""
        return len(self._readers)

    def ring(self) -> None:
        """Somebody is held who was not before."""
        for reader in self._readers:
            reader.set()

    def close(self) -> None:
        """End every stream."""
        self.closed = True
        self.ring()

    @contextlib.contextmanager
    def reader(self) -> Iterator[asyncio.Event]:
        """An event that is set by `ring`."""
        event = asyncio.Event()
        self._readers.add(event)
        try:
            yield event
        finally:
            self._readers.discard(event)


def service_demand(desk: Desk, now: float) -> ServiceDemand:
    """One service's line of the report; classes that were never asked for are left out."""
    held = desk.dispatcher.held(now) > 0
    classes = tuple(_class_demand(desk, name, now, held=held) for name, tally in desk.tallies.items() if tally.arrivals)
    connected = sum(worker.connected for worker in desk.fleet)
    return ServiceDemand(service=desk.key, classes=classes, workers=connected)


def _class_demand(desk: Desk, name: RequestClass, now: float, *, held: bool) -> ClassDemand:
    tally, line = desk.tallies[name], desk.dispatcher.lines[name]
    deadline = line.nearest_deadline
    return ClassDemand(
        name=name,
        arrivals=tally.arrivals,
        prompt_tokens=tally.prompt_tokens,
        output_tokens=tally.output_tokens,
        completed=tally.completed,
        queued=len(line),
        queued_prompt_tokens=line.prompt_tokens,
        oldest_wait_s=0.0 if line.oldest is None else max(now - line.oldest, 0.0),
        nearest_deadline_s=None if deadline is None else deadline - now,
        held=len(line) if held else 0,
        in_flight=desk.open[name] - len(line),
        good=tally.good,
        bad=tally.bad,
    )


async def demand_lines(
    gateway: str, started: str, desks: Callable[[], Iterable[Desk]], now: Callable[[], float], bell: Bell
) -> AsyncIterator[bytes]:
    """One reader's lines, until it closes the generator."""
    with bell.reader() as rung:
        seq = 0
        while not bell.closed:
            services = tuple(service_demand(desk, now()) for desk in desks())
            yield encode(DemandReport(seq=seq, gateway=gateway, started=started, services=services))
            seq += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):
                    await rung.wait()
            rung.clear()
