"""Replicas start by stage, wait for nodes, drain, are lost, and are paid from order to release."""

from random import Random
from typing import Any

import pytest
from tests.simulator.engines import Client, pool_plan, submission

from paceline_core.errors import InvalidInput
from paceline_core.kube import StartStage
from paceline_simulator.cluster import PoolPlan, SimulatedCluster, SimulatedReplica, StartTimes
from paceline_simulator.events import EventQueue


class Run:
    def __init__(self, plan: PoolPlan, ready: int = 0) -> None:
        self.events = EventQueue()
        self.changes: list[tuple[float, str]] = []
        self.killed: list[SimulatedReplica] = []
        self.cluster = SimulatedCluster([plan], self.events, Random(1), self.changed, self.killed.append)
        self.target = plan.target
        self.cluster.begin({plan.target: ready})

    def changed(self, service: str) -> None:
        self.changes.append((self.events.now, service))

    def scale(self, count: int) -> None:
        self.cluster.scale({self.target: count})

    def states(self) -> list[str]:
        return [f"{replica.stage} {replica.state}" for replica in self.cluster.replicas]


def exact(lead_s: float = 20.0, **fields: Any) -> PoolPlan:
    plan = pool_plan(**fields)
    return PoolPlan(plan.target, plan.engine, StartTimes.of(lead_s, spread=0.0), **fields)


def test_a_start_passes_its_stages_and_serves_at_its_end() -> None:
    run = Run(exact(20.0))
    run.scale(1)
    seen, shown = [], []
    for at in (0.5, 3.0, 10.0, 18.0, 20.0):
        run.events.run(until=at)
        seen += run.states()
        shown += [endpoint.stage for endpoint in run.cluster.endpoints("default/chat")]
    names = ["schedule", "pull", "load", "warm"]
    assert seen == [*(f"{name} starting" for name in names), "ready ready"]
    assert shown == [StartStage.SCHEDULE, StartStage.PULL, StartStage.LOAD, StartStage.LOAD, None]
    assert [endpoint.ready for endpoint in run.cluster.endpoints("default/chat")] == [True]
    assert list(run.cluster.engines) == ["chat-main-0"]
    assert run.changes[-1] == (20.0, "default/chat")


def test_starts_vary_together_around_their_mean_and_some_hang() -> None:
    times, random = StartTimes.of(100.0, 0.15), Random(3)
    totals = [sum(seconds for _, seconds in times.draw(random)) for _ in range(2000)]
    mean = sum(totals) / len(totals)
    assert mean == pytest.approx(times.mean_s, rel=0.02)
    assert (sum((t - mean) ** 2 for t in totals) / len(totals)) ** 0.5 == pytest.approx(15.0, rel=0.1)
    stuck = StartTimes((("load", 10.0),), 0.0, stuck_share=0.25, stuck_s=500.0)
    assert sum(stuck.draw(random)[0][1] > 500 for _ in range(2000)) / 2000 == pytest.approx(0.25, abs=0.03)
    with pytest.raises(InvalidInput, match=r"pools\.main\.start"):
        PoolPlan(pool_plan().target, pool_plan().engine, StartTimes(()))


def test_replicas_without_room_on_the_nodes_are_pending_unpaid_and_take_the_next_place() -> None:
    run = Run(exact(10.0, capacity=2), ready=2)
    run.scale(3)
    run.events.run(until=50.0)
    assert run.states() == ["ready ready", "ready ready", "pending starting"]
    assert run.cluster.endpoints("default/chat")[2].stage is StartStage.SCHEDULE
    assert run.cluster.gpu_seconds(run.target) == 100.0
    run.cluster.replicas[0].engine.stop()  # type: ignore[union-attr]
    run.cluster._take_away(run.cluster.replicas[0])
    run.events.run(until=70.0)
    assert run.states() == ["ready ready", "ready ready", "pending starting"]
    assert run.cluster.gpu_seconds(run.target) == 140.0


def test_idle_replicas_leave_at_once_and_those_that_start_leave_first() -> None:
    run = Run(exact(10.0), ready=1)
    run.scale(3)
    run.events.run(until=5.0)
    run.scale(1)
    assert run.states() == ["ready ready"]
    run.events.run(until=60.0)
    assert run.states() == ["ready ready"]
    assert run.cluster.gpu_seconds(run.target) == 60.0 + 2 * 5.0


def test_retired_replicas_leave_before_the_newest() -> None:
    run = Run(exact(10.0), ready=3)
    run.cluster.scale({run.target: 1}, ["chat-main-0", "chat-main-1"])
    assert list(run.cluster.engines) == ["chat-main-2"]
    run = Run(exact(10.0), ready=3)
    run.scale(1)
    assert list(run.cluster.engines) == ["chat-main-0"]


def test_a_draining_replica_ends_with_its_last_request_or_at_its_limit() -> None:
    for limit, output in ((100.0, 20), (0.5, 4000)):
        run = Run(exact(10.0, drain_limit_s=limit), ready=1)
        client = Client(run.events)
        engine = run.cluster.engines["chat-main-0"]
        engine.submit(submission(client, "a", 50, output))
        run.events.run(until=0.1)
        run.scale(0)
        assert run.states() == ["ready draining"]
        assert run.cluster.endpoints("default/chat")[0].terminating
        run.events.every(0.25, run.cluster.sweep, first=0.25)
        run.events.run(until=5.0)
        assert (run.states(), run.cluster.engines) == ([], {})
        assert [replica.name for replica in run.killed] == ["chat-main-0"]
        assert ("a" in client.ends) == (output == 20)


def test_a_spot_replica_is_lost_after_its_notice_and_replaced_at_once() -> None:
    run = Run(exact(10.0, lost_per_hour=3600.0, notice_s=2.0), ready=1)
    client = Client(run.events)
    run.cluster.engines["chat-main-0"].submit(submission(client, "a", 50, 4000))
    run.events.run(until=8.0)
    assert run.killed
    assert client.ends == {}
    assert run.cluster.replicas[0].name == "chat-main-1"


def test_an_outage_takes_a_share_of_the_ready_replicas_at_once() -> None:
    run = Run(exact(20.0, outages=((5.0, 1 / 3),)), ready=6)
    run.events.run(until=5.5)
    assert sorted(run.states()) == 4 * ["ready ready"] + 2 * ["schedule starting"]
