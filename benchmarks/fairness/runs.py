"""What each tenant was served in a simulated service, measured from its requests and not from the queues' counters.

`benchmarks.routing.runs` makes the service; here its calls have tenants, and a run may end before the last answer.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf

from benchmarks.routing.runs import SERVICE, Outcome, RoutingVariant, measured, simulation

from paceline_core.registry.enums import RequestClass
from paceline_gateway.queueing.fair_queue import Cached, FairQueue
from paceline_gateway.queueing.queued_request import OUTPUT_WEIGHT, QueuedRequest
from paceline_simulator.engine import EngineSpec
from paceline_simulator.simulation import Simulation
from paceline_simulator.traces import TraceRequest

Calls = Mapping[RequestClass, Sequence[TraceRequest]]
Entries = defaultdict[str, list[tuple[float, float]]]


def _entries() -> Entries:
    return defaultdict(list)


class FirstComeQueue(FairQueue):
    """First come, first served, whoever the tenant is."""

    def next(self, cached: Cached | None) -> QueuedRequest | None:  # noqa: ARG002 - as a FairQueue has it
        """The oldest request."""
        late = {queued.id for queued in self.late}
        return next((queued for queued in self if queued.id not in late), None)


@dataclass(slots=True)
class ServiceRecord:
    """What happened, by tenant. `waits`: seconds in the queue, with the time when they were over. `ttft`: the same.

    `service`: tokens with the time, uncached prompts when they begin, output twice when it ends. `idle`: when each
    tenant last had nobody waiting.
    """

    waits: Entries = field(default_factory=_entries)
    ttft: Entries = field(default_factory=_entries)
    service: Entries = field(default_factory=_entries)
    idle: dict[str, float] = field(default_factory=dict)


def fair(calls: Calls, spec: EngineSpec, workers: int, until: float = inf) -> tuple[ServiceRecord, Outcome]:
    """A run with the production queues."""
    return _recorded(simulation(calls, spec, RoutingVariant("pace"), workers, until))


def first_come(calls: Calls, spec: EngineSpec, workers: int, until: float = inf) -> tuple[ServiceRecord, Outcome]:
    """The same, first come, first served."""
    made = simulation(calls, spec, RoutingVariant("pace"), workers, until)
    for gateway in made.gateways:
        queues = gateway.services[SERVICE].dispatcher.queues
        queues.update((name, FirstComeQueue()) for name in list(queues))
    return _recorded(made)


Runner = Callable[[Calls, EngineSpec, int], tuple[ServiceRecord, Outcome]]


@dataclass(frozen=True, slots=True)
class _Served:
    """One request: its times, None for what has not happened, and its tokens."""

    tenant: str
    at: float
    sent: float | None
    first: float | None
    ended: float | None
    uncached: int
    output: int


def _recorded(made: Simulation) -> tuple[ServiceRecord, Outcome]:
    outcome = measured(made)
    record, waiting = ServiceRecord(), defaultdict[str, list[tuple[float, float]]](list)
    for served in _served(made):
        waiting[served.tenant].append((served.at, made.events.now if served.sent is None else served.sent))
        if served.sent is not None:
            record.waits[served.tenant].append((served.sent, served.sent - served.at))
        if served.first is not None:
            record.ttft[served.tenant].append((served.first, served.first - served.at))
            record.service[served.tenant].append((served.first, served.uncached))
        if served.ended is not None:
            record.service[served.tenant].append((served.ended, OUTPUT_WEIGHT * served.output))
    record.idle = {tenant: last_gap(intervals) for tenant, intervals in waiting.items()}
    for entries in (record.waits, record.ttft, record.service):
        for values in entries.values():
            values.sort()
    return record, outcome


def _served(made: Simulation) -> Iterator[_Served]:
    """All requests of a run, those that were open at its end included."""
    for done in made.result.requests:
        first = None if done.ttft is None else done.at + done.ttft
        yield _Served(
            done.tenant, done.at, done.sent, first, done.ended, done.prompt_tokens - done.cached, done.output_tokens
        )
    for gateway in made.gateways:
        for request in gateway.open.values():
            cached = 0 if request.submission is None else request.submission.request.cached
            uncached = request.asked.prompt_tokens - cached
            yield _Served(request.asked.tenant, request.asked.at, request.sent, request.first, None, uncached, 0)


def last_gap(intervals: Sequence[tuple[float, float]]) -> float:
    """When none of these intervals was last under way before the last one ends."""
    covered, last = 0.0, 0.0
    for (begin, end), _ in pairwise([*sorted(intervals), (inf, inf)]):
        if begin > covered:
            last = begin
        covered = max(covered, end)
    return last
