"""Whole runs: every request is accounted for, runs repeat, leaps change no result, and streams survive drains."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

import pytest
from tests.simulator.engines import pool_plan, run_plan, service, spec

from paceline_autoscaler.policies.replica_policy import ProductionPolicy, ReplicaPolicy
from paceline_autoscaler.types import Observation
from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import ScaleTarget
from paceline_core.registry.enums import Outcome, RequestClass
from paceline_gateway.queueing.pressure import AFTER_S
from paceline_simulator.cluster import EPOCH, PoolPlan, StartTimes
from paceline_simulator.control import MetricsSpec
from paceline_simulator.policies import policy_of
from paceline_simulator.results import SimulationResult
from paceline_simulator.simulation import RunPlan, ServicePlan, Simulation
from paceline_simulator.traces import TraceRequest
from paceline_simulator.workloads import closed_loop, combine, fixed, poisson


def arrivals(rate: float, span: float, prompt: int = 400, output: int = 40, seed: int = 1) -> list[TraceRequest]:
    return combine(poisson(rate, Random(seed)), fixed(prompt, output), Random(seed), span)


def finished(plan: RunPlan) -> tuple[Simulation, SimulationResult]:
    made = Simulation(plan)
    result = made.run()
    for gateway in made.gateways:
        for state in gateway.services.values():
            assert all((worker.in_flight, len(worker.unbegun)) == (0, 0) for worker in state.pool)
            assert state.dispatcher.waiting == 0
    assert all(engine.open == 0 for engine in made.cluster.engines.values())
    return made, result


@pytest.mark.parametrize("gateways", [1, 3])
def test_every_request_ends_once_and_a_run_repeats_itself(gateways: int) -> None:
    requests = arrivals(6.0, 20.0)
    (made, result), (_, again) = (finished(run_plan(requests, replicas=2, gateways=gateways)) for _ in range(2))
    assert result == again
    assert sorted(request.at for request in result.requests) == [request.at for request in requests]
    assert {request.outcome for request in result.requests} == {Outcome.OK}
    assert {request.output_tokens for request in result.requests} == {40}
    assert len({request.worker for request in result.requests}) == 2
    assert result.attainment() == 1.0
    assert sum(result.gpu_s.values()) == pytest.approx(2 * made.events.now)


def test_replicas_that_are_there_from_the_start_teach_the_autoscaler_nothing_about_starts() -> None:
    policy = ProductionPolicy()
    finished(run_plan(arrivals(6.0, 20.0), policy, replicas=2))
    assert policy.state.learned.starts == ()


def test_leaps_change_no_result_while_replicas_come_and_go() -> None:
    requests, results = arrivals(4.0, 15.0, output=150), []
    for leaps in (True, False):
        pool = pool_plan(lead_s=4.0, made=spec(leaps=leaps), lost_per_hour=600.0, notice_s=1.6)
        made, result = finished(run_plan(requests, ProductionPolicy(), replicas=2, pool=pool))
        evicted = [engine.memory.pool.evicted for engine in made.cluster.engines.values()]
        results.append((result, evicted, [replica.name for replica in made.cluster.replicas]))
    assert any(request.resumed for request in results[0][0].requests)
    assert results[0] == results[1]


def test_turns_of_a_conversation_find_their_prefix() -> None:
    turns = [
        TraceRequest(3.0 * turn + 0.1 * number, 512 * (2 + turn), 20, tuple(range(9 * number, 9 * number + 2 + turn)))
        for turn in range(5)
        for number in range(6)
    ]
    _, result = finished(run_plan(turns, replicas=3))
    assert result.hit_rate() > 0.5
    workers = Counter(request.worker for request in result.requests)
    assert len(workers) == 3


def test_streams_move_off_a_draining_replica_and_lose_nothing() -> None:
    plan = run_plan(arrivals(3.0, 4.0, output=300), replicas=2, pool=pool_plan(drain_limit_s=30.0))
    made = Simulation(plan)
    made.events.at(4.0, lambda: made.cluster.scale({plan.services[0].pools[0].target: 1}))
    made.scalers["default/chat"].policy = policy_of("static:1")
    result = made.run()
    moved = [request for request in result.requests if request.resumed]
    assert moved
    assert {request.outcome for request in result.requests} == {Outcome.OK}
    assert {request.output_tokens for request in result.requests} == {300}
    assert len(made.cluster.replicas) == 1


def test_requests_of_a_lost_replica_go_on_elsewhere() -> None:
    pool = pool_plan(lead_s=5.0, lost_per_hour=400.0, notice_s=0.5)
    _, result = finished(run_plan(arrivals(2.0, 60.0, output=100), replicas=3, pool=pool))
    assert {request.outcome for request in result.requests} == {Outcome.OK}
    assert any(request.resumed for request in result.requests)


def test_an_overload_is_shed_by_the_gateway_and_counts_as_missed() -> None:
    _, result = finished(run_plan(arrivals(80.0, 20.0, prompt=4000), replicas=1))
    outcomes = Counter(request.outcome for request in result.requests)
    assert outcomes[Outcome.SHED] > 0
    assert result.attainment() < outcomes[Outcome.OK] / len(result.requests)


def test_an_overload_refuses_new_offline_requests_and_no_batch() -> None:
    plan = run_plan([], pool=pool_plan(made=spec(8000)))
    rates = {RequestClass.INTERACTIVE: 8.0, RequestClass.BATCH: 0.5, RequestClass.OFFLINE: 1.0}
    mixed = {
        name: [replace(request, tenant=name) for request in arrivals(rate, 60.0, 3000, 60, seed)]
        for seed, (name, rate) in enumerate(rates.items())
    }
    _, result = finished(replace(plan, services=(replace(plan.services[0], arrivals=mixed),)))
    refused = [one for one in result.requests if one.tenant == "offline" and one.outcome is Outcome.SHED]
    assert refused
    assert min(one.at for one in refused) > AFTER_S
    assert {one.outcome for one in result.requests if one.tenant == "batch"} == {Outcome.OK}


def test_only_arrivals_of_the_scored_window_count_and_open_requests_miss() -> None:
    made = Simulation(run_plan(arrivals(4.0, 30.0, output=400), until=20.0, score=(10.0, 20.0)))
    result = made.run()
    late = sum(10.0 <= at < 20.0 for at, _ in result.unfinished)
    assert late > 0
    assert result.offered() == sum(10.0 <= request.at < 20.0 for request in result.requests) + late
    assert result.attainment() <= 1 - late / result.offered()
    assert result.gpu_s == {"default/chat": pytest.approx(10.0)}


def test_the_production_policy_scales_up_under_load_and_requests_come_back_in_time() -> None:
    policy = ProductionPolicy()
    pool = pool_plan(lead_s=10.0, made=spec(8000))
    _, result = finished(
        run_plan(arrivals(9.0, 150.0, prompt=3000, output=60), policy, pool=pool, metrics=MetricsSpec(lag_s=1.0))
    )
    assert max(moment.ready for moment in result.timeline) > 1
    assert policy.decisions
    late = replace(result, start=100.0)
    assert late.attainment() > 0.95


@dataclass
class Recorded:
    """A policy, and the times at which it decided."""

    policy: ReplicaPolicy
    period_s: float
    lag_s: float
    times: list[float] = field(default_factory=list)
    retires: bool = False

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        self.times.append(observation.now)
        return self.policy.replicas(observation)


def test_a_baseline_scales_by_its_own_period() -> None:
    policy = policy_of("hpa-concurrency:4")
    recorded = Recorded(policy, policy.period_s, policy.lag_s)
    pool = pool_plan(lead_s=10.0, made=spec(8000))
    _, result = finished(run_plan(arrivals(9.0, 100.0, prompt=3000, output=60), recorded, pool=pool))
    assert max(moment.desired for moment in result.timeline) > 10
    assert {round(later - before, 6) for before, later in pairwise(recorded.times)} == {15.0}


@dataclass
class OneLess:
    """Three replicas for ten seconds, then two."""

    retires: bool
    period_s: float = 10.0
    lag_s: float = 0.0

    def replicas(self, observation: Observation) -> Mapping[str, int]:
        return {"main": 3 if observation.now < EPOCH.timestamp() + 10.0 else 2}


@pytest.mark.parametrize("retires", [True, False])
def test_a_retiring_policy_gives_up_the_least_busy_replica_and_any_other_the_newest(retires: bool) -> None:
    made = Simulation(run_plan(arrivals(3.0, 30.0, output=900), OneLess(retires), replicas=3))
    made.events.at(10.9, lambda: [made.cluster.engines["chat-main-1"].abort(name) for name in _open(made)])
    stay: list[str] = []
    made.events.at(11.5, lambda: stay.extend(r.name for r in made.cluster.replicas if not r.draining))
    made.plan = replace(made.plan, until=11.6)
    made.run()
    assert stay == ["chat-main-0", "chat-main-2" if retires else "chat-main-1"]


def _open(made: Simulation) -> list[str]:
    return list(made.cluster.engines["chat-main-1"]._submissions)


def test_clients_that_wait_for_their_answers_send_one_request_after_the_other() -> None:
    first, following = closed_loop(4, 0.5, fixed(200, 10), Random(1))
    made = Simulation(run_plan(first, follow=following, until=20.0))
    result = made.run()
    assert len(result.requests) > 40
    assert max(moment.in_flight for moment in result.timeline) <= 4
    assert made.events.now == 20.0


def test_services_pools_and_classes_share_one_heap_and_nothing_else() -> None:
    plans = []
    for name in ("chat", "code"):
        pools = tuple(
            PoolPlan(ScaleTarget(ObjectKey("default", name), pool), spec(), StartTimes.of(5.0))
            for pool in ("main", "spare")
        )
        classes = {RequestClass.INTERACTIVE: arrivals(2.0, 10.0), RequestClass.BATCH: arrivals(1.0, 10.0, seed=2)}
        made = service(name, ("main", "spare"))
        plans.append(ServicePlan(made, pools, classes, policy_of("static:1"), {"main": 1, "spare": 1}))
    _, result = finished(RunPlan(tuple(plans)))
    for plan in plans:
        key = plan.service.key
        assert result.offered(key) == sum(map(len, plan.arrivals.values()))
        assert {r.worker.rpartition("-")[0] for r in result.scored(key)} == {
            f"{plan.service.name}-main",
            f"{plan.service.name}-spare",
        }
