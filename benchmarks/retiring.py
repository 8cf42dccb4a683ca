"""Whether a scale-down removes the worker with the least remaining work, and whether it costs a request.

A simulated pool of five H100 with Llama 3.1 8B loses a replica a hundred times and gets it back each time, under
Poisson arrivals with the lengths of Azure's conversation log. What each worker has left is known exactly there: prompt
tokens to compute, and tokens that its answers will have, in seconds of its step-time model. The autoscaler's choice
rests on load reports, so on how long the engines expect answers to become. Where clients ask for the length that they
get (`max_tokens`), the engines learn that it can be relied on. Elsewhere they only know how long answers are on
average, and the worker that will turn out to have the least cannot be known; there the rows say by how much less it had
than the others.

Peers: the newest replica, which a ReplicaSet takes among ready ones, as far as it distinguishes them at all.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random
from statistics import fmean
from typing import Any

from benchmarks.harness import Bar, Measured, Row, main
from benchmarks.routing.runs import LIMITS, TARGET, service
from benchmarks.scheduling.runs import h100
from benchmarks.traces import azure

from paceline_autoscaler.output.victims import PoolWorker, choose_victims, remaining_s
from paceline_autoscaler.types import Observation
from paceline_core.objects import ResolvedService
from paceline_core.registry.enums import Outcome, RequestClass
from paceline_core.wire import LoadReport
from paceline_simulator.cluster import REVISION, PoolPlan, StartTimes
from paceline_simulator.results import SimulationResult
from paceline_simulator.simulation import RunPlan, ServicePlan, Simulation
from paceline_simulator.workloads import combine, poisson, resampled

WORKERS = 5
PAGE_TOKENS = 16
RATES = (6.0, 18.0)
"""Requests a second. At the first few answers are under way at each worker, as before most scale-downs."""
DOWNS, QUICK_DOWNS = 100, 10
PERIOD_S = 20.0
"""A replica leaves in the middle of each, and comes back at its end."""
LOG = 5000
LEAST, KEPT = Bar(0.9, at_least=True), Bar(0)


@dataclass(frozen=True, slots=True)
class Choice:
    """One scale-down: each worker's remaining work in seconds, who is retired, and who would go without that."""

    remaining_s: Mapping[str, float]
    retired: str
    newest: str

    def is_least(self, worker: str) -> bool:
        """Whether no other has less to do."""
        return self.remaining_s[worker] <= min(self.remaining_s.values())

    def share(self, worker: str) -> float:
        """Its work over the mean of all workers; 0 if none has any."""
        mean = fmean(self.remaining_s.values())
        return self.remaining_s[worker] / mean if mean else 0.0


@dataclass(slots=True)
class OneLess:
    """A policy that orders one replica less in the second half of each period, and notes every choice of a victim."""

    downs: int
    choices: list[Choice] = field(default_factory=list)
    run: Simulation | None = None
    period_s: float = PERIOD_S / 2
    lag_s: float = 0.0
    retires: bool = True
    whole: bool = False

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        del observation
        self.whole = not self.whole
        if self.whole or self.run is None or len(self.choices) == self.downs:
            return {"main": WORKERS}
        self.choices.append(choice(self.run))
        return {"main": WORKERS - 1}


def choice(run: Simulation) -> Choice:
    """The choice that a scale-down makes now."""
    ready = {r.name: r.engine for r in run.cluster.replicas if r.engine is not None and not r.draining}
    loads = {name: engine.remaining_load() for name, engine in ready.items()}
    (retired,) = choose_victims([PoolWorker(name, REVISION, True, load) for name, load in loads.items()], 1)
    return Choice(truth(run, loads), retired, newest=list(ready)[-1])


def truth(run: Simulation, loads: Mapping[str, LoadReport]) -> dict[str, float]:
    """Each worker's remaining work, with the lengths that the answers under way will have."""
    tokens = dict.fromkeys(loads, 0)
    for request in (request for gateway in run.gateways for request in gateway.open.values()):
        if (made := request.submission) is not None and request.machine.worker in tokens:
            tokens[request.machine.worker] += made.length - len(made.request.tokens)
    return {
        name: remaining_s(load.model_copy(update={"remaining_tokens": tokens[name]})) for name, load in loads.items()
    }


def simulated(downs: int, rate: float, *, named: bool) -> tuple[Sequence[Choice], SimulationResult]:
    """So many scale-downs; `named`: the requests' `max_tokens` are the lengths of their answers."""
    policy, lengths = OneLess(downs), resampled(azure(LOG))
    requests = combine(poisson(rate, Random(1)), lengths, Random(2), PERIOD_S * (downs + 1))
    pool = PoolPlan(TARGET, h100(PAGE_TOKENS), StartTimes.of(1e-3))
    plan = ServicePlan(chat(named), (pool,), {RequestClass.INTERACTIVE: requests}, policy, {"main": WORKERS})
    policy.run = Simulation(RunPlan((plan,), seed=1, limits=LIMITS))
    return policy.choices, policy.run.run()


def chat(named: bool) -> ResolvedService:
    """A request's limit is its answer's length, or its class's limit if that is higher."""
    made = service()
    limits = {name: replace(cls, max_tokens=1) for name, cls in made.classes.items()} if named else made.classes
    return replace(made, classes=limits)


def measure(quick: bool) -> Measured:
    """Both kinds of clients, at both rates."""
    downs = QUICK_DOWNS if quick else DOWNS
    cells = [(named, rate) for named in (True, False) for rate in RATES]
    with ProcessPoolExecutor() as pool:
        runs = {_words(*cell): pool.submit(_measured, downs, *cell) for cell in cells}
        rows = [row for run in runs.values() for row in run.result()[0]]
        return rows, {words: run.result()[1] for words, run in runs.items()}


def _measured(downs: int, named: bool, rate: float) -> tuple[list[Row], dict[str, Any]]:
    choices, result = simulated(downs, rate, named=named)
    words, failed = _words(named, rate), sum(request.outcome is not Outcome.OK for request in result.requests)
    least = [fmean(one.is_least(worker(one)) for one in choices) for worker in (_retired, _newest)]
    work = [fmean(one.share(worker(one)) for one in choices) for worker in (_retired, _newest)]
    best = fmean(min(map(one.share, one.remaining_s)) for one in choices)
    rows = [
        Row(
            f"{words}: the one that goes had the least work", least[0], "share", least[1], bar=LEAST if named else None
        ),
        Row(f"{words}: its work over the mean of all workers", work[0], "ratio", work[1]),
        Row(f"{words}: the same of the one that had the least", best, "ratio"),
        Row(f"{words}: requests failed, of {len(result.requests)}", failed, "requests", bar=KEPT),
    ]
    resumed = sum(request.resumed for request in result.requests)
    return rows, {"scale_downs": len(choices), "resumed_streams": resumed}


def _retired(one: Choice) -> str:
    return one.retired


def _newest(one: Choice) -> str:
    return one.newest


def _words(named: bool, rate: float) -> str:
    return f"lengths {'named' if named else 'learned'}, {rate:g} requests/s"


if __name__ == "__main__":
    main("retiring", measure)
