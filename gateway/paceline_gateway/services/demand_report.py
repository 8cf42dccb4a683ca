"""`GET /internal/demand`: this gateway's demand, as lines for the autoscaler; once a second, and at once when a request
starts to be held, so that a service at zero wakes without waiting for the next line.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass

from paceline_core.registry import RequestClass
from paceline_core.wire import ClassDemand, ClassLengths, DemandReport, ServiceDemand, encode
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.metrics import OTHER

PERIOD_S = 1.0
LENGTHS_EVERY = 30
"""One line of so many has the lengths of requests."""
SUBSCRIBERS = 16


class ChangeNotifier:
    """Wakes every reader of the demand stream."""

    def __init__(self) -> None:
        self._readers: set[asyncio.Event] = set()
        self.closed = False

    @property
    def readers(self) -> int:
        return len(self._readers)

    def notify(self) -> None:
        """The first request of a service is held."""
        for reader in self._readers:
            reader.set()

    def close(self) -> None:
        self.closed = True
        self.notify()

    @contextlib.contextmanager
    def reader(self) -> Iterator[asyncio.Event]:
        """An event that is set by `notify`."""
        event = asyncio.Event()
        self._readers.add(event)
        try:
            yield event
        finally:
            self._readers.discard(event)


@dataclass(slots=True)
class _Queue:
    """One tenant's part of a queue."""

    requests: int = 0
    prompt_tokens: int = 0
    overdue_prompt_tokens: int = 0
    oldest: float | None = None
    deadline: float | None = None

    def add(self, queued: QueuedRequest, now: float, *, late: bool) -> None:
        self.requests += 1
        self.prompt_tokens += queued.prompt_tokens
        if queued.due <= now:
            self.overdue_prompt_tokens += queued.prompt_tokens
        self.oldest = queued.joined if self.oldest is None else min(self.oldest, queued.joined)
        if not late:
            self.deadline = queued.deadline if self.deadline is None else min(self.deadline, queued.deadline)


_EMPTY = _Queue()


def service_demand(service: ServiceState, now: float, *, lengths: bool = False) -> ServiceDemand:
    """One service's line of the report: a row for each class and tenant with any demand so far; classes are the sum."""
    held = service.dispatcher.held(now) > 0
    rows = tuple(row for name in service.tallies for row in _class_demand(service, name, now, held=held))
    connected = sum(worker.connected for worker in service.pool)
    return ServiceDemand(
        service=service.key,
        classes=rows,
        workers=connected,
        isolated=tuple(service.isolated),
        lengths=tuple(_lengths(service)) if lengths else (),
    )


def _lengths(service: ServiceState) -> Iterator[ClassLengths]:
    for name, counts in service.lengths.items():
        if counts.requests:
            yield ClassLengths(
                name=name,
                requests=counts.requests,
                prompt_tokens=counts.prompt_tokens,
                cached_tokens=counts.cached_tokens,
                output_tokens=counts.output_tokens,
                prompts=tuple(counts.prompts),
                outputs=tuple(counts.outputs),
            )


def _class_demand(service: ServiceState, name: RequestClass, now: float, *, held: bool) -> Iterator[ClassDemand]:
    tallies, queue = service.tenants[name], service.dispatcher.queues[name]
    late = {queued.id for queued in queue.late}
    parts: dict[str, _Queue] = {}
    for queued in queue:
        label = queued.tenant if queued.tenant in tallies else OTHER
        parts.setdefault(label, _Queue()).add(queued, now, late=queued.id in late)
    for tenant, tally in tallies.items():
        part = parts.get(tenant, _EMPTY)
        yield ClassDemand(
            name=name,
            tenant=tenant,
            arrivals=tally.arrivals,
            prompt_tokens=tally.prompt_tokens,
            output_tokens=tally.output_tokens,
            completed=tally.completed,
            completed_prompt_tokens=tally.completed_prompt_tokens,
            cached_tokens=tally.cached_tokens,
            attended_pairs=tally.attended_pairs,
            kv_reads=tally.kv_reads,
            queued=part.requests,
            queued_prompt_tokens=part.prompt_tokens,
            overdue_prompt_tokens=part.overdue_prompt_tokens,
            oldest_wait_s=0.0 if part.oldest is None else max(now - part.oldest, 0.0),
            nearest_deadline_s=None if part.deadline is None else part.deadline - now,
            held=part.requests if held else 0,
            in_flight=tally.open - part.requests,
            good=tally.good,
            bad=tally.bad,
        )


async def demand_lines(
    gateway: str,
    started: str,
    states: Callable[[], Iterable[ServiceState]],
    now: Callable[[], float],
    changes: ChangeNotifier,
) -> AsyncIterator[bytes]:
    """One reader's lines, until it closes the generator."""
    with changes.reader() as changed:
        seq = 0
        while not changes.closed:
            lengths = seq % LENGTHS_EVERY == 0
            services = tuple(service_demand(service, now(), lengths=lengths) for service in states())
            yield encode(DemandReport(seq=seq, gateway=gateway, started=started, services=services))
            seq += 1
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_S):
                    await changed.wait()
            changed.clear()
