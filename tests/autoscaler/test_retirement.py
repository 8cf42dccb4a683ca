"""A scale-down from its decision to the write: who is retired, what the scale waits for, and who comes back."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.autoscaler.fake_cluster import FakeCluster
from tests.autoscaler.talkers import Talker, demand_report, eventually, load_report
from tests.autoscaler.test_controller import KEY, PLACE, POOL, SLO, Rig, exported
from tests.autoscaler.test_scaling_goals import manifest

from paceline_autoscaler.output.retirement import BACK_S, RENEW_LIMIT_S, UNREADY_LIMIT_S
from paceline_core.clock import rfc3339
from paceline_core.errors import Conflict, Unreachable
from paceline_core.kube import Endpoint, Listed, ServiceEndpoints, StartStage, Upserted
from paceline_core.registry.enums import ReplicaState
from paceline_core.wire import StepTime, WorkerState

TOKENS = (900, 100, 400)
"""What each worker has yet to produce."""
STEP = StepTime(base=0.01, prefill=1e-4)


class Pool(Rig):
    """A pool of policy `fixed`, whose minimum says how many replicas it gets. Workers take the call to retire."""

    def __init__(self, folder: Path, name: str = "a", cluster: FakeCluster | None = None) -> None:
        super().__init__(folder, cluster, name)
        self.unready: set[int] = set()
        self.there = [0, 1, 2]
        self.revisions: dict[int, str] = {}
        self.created = rfc3339(self.clock.utc())

    def talker(self, number: int) -> Talker:
        return self.talkers[f"10.1.0.{number}:9000"]

    @property
    def retired(self) -> list[int]:
        return [number for number in self.there if self.talker(number).retired]

    async def open(self, knows_call: bool = True) -> None:
        for number in self.there:
            self.talker(number).retires = knows_call
        self.cluster.move(POOL, len(self.there))
        await self.gateways.find()
        await self.wish(len(self.there))

    async def wish(self, replicas: int) -> None:
        """So many are wanted from this pass on."""
        self.want(replicas)
        await self.one()

    def want(self, replicas: int) -> None:
        pools = [{"name": "main", "accelerator": "h100", "replicas": {"min": replicas, "max": replicas}}]
        document = manifest(classes=SLO, pools=pools, scaling={"policy": "fixed"})
        self.autoscaler.cluster_view.on_service(Listed((document,)))

    def endpoints(self) -> ServiceEndpoints:
        rows = []
        for number in self.there:
            ready, revision = number not in self.unready, self.revisions.get(number, PLACE[2])
            rows.append(
                Endpoint(
                    f"main-{number}", *PLACE[:2], revision, f"10.1.0.{number}", 9000, ready,
                    created=self.created, stage=None if ready else StartStage.LOAD,
                )
            )  # fmt: skip
        return ServiceEndpoints(KEY, tuple(rows))

    async def one(self, seconds: float = 1.0) -> None:
        """A pass, after everybody was heard."""
        self.autoscaler.on_workers(Listed((self.endpoints(),)))
        self.clock.advance(seconds)
        self.talkers["10.0.0.1:81"].say(demand_report())
        for number in self.there:
            gone = bool(self.talker(number).retired)
            state = WorkerState.DRAINING if gone else WorkerState.READY
            load = {"remaining_tokens": TOKENS[number], "step_time": STEP}
            self.talker(number).say(load_report(f"main-{number}", state=state, retired=gone, **load))
        now = self.clock.monotonic()
        for streams in (self.gateways._streams, self.workers._streams):
            count = 1 if streams is self.gateways._streams else len(self.there)
            await eventually(lambda s=streams, c=count: sum(x.at >= now for x in s.received.values()) == c)  # type: ignore[misc]
        await self.autoscaler.step()

    def saw(self, state: ReplicaState, count: int) -> bool:
        """Whether the last decision saw so many replicas in this state."""
        labels = f'pisvc="chat",pisvc_namespace="default",pool="main",state="{state}"'
        return exported(self, f"paceline_autoscaler_replicas{{{labels}}} {count}")

    @property
    def downs(self) -> int:
        return sum(event.reason == "ScaledDown" for event in self.cluster.events)


@pytest.fixture
async def pool(tmp_path: Path) -> AsyncIterator[Pool]:
    made = Pool(tmp_path / "ledger")
    await made.open()
    yield made
    await made.autoscaler.close()


async def test_the_least_busy_worker_is_retired_and_the_scale_waits_for_the_watch(pool: Pool) -> None:
    await pool.wish(2)
    await pool.one()
    assert (pool.retired, pool.cluster.written, pool.downs) == ([1], [], 0)
    pool.unready = {1}
    await pool.one()
    assert (pool.retired, pool.cluster.written, pool.downs) == ([1], [(POOL, 2)], 1)
    pool.there = [0, 2]
    await pool.one()
    assert (pool.cluster.written, pool.downs) == ([(POOL, 2)], 1)


async def test_the_watch_begins_the_pass_that_lowers_the_scale(pool: Pool) -> None:
    await pool.wish(2)
    pool.bell.clear()
    pool.autoscaler.on_workers(Upserted(pool.endpoints()))
    assert not pool.bell.is_set()
    pool.unready = {1}
    pool.autoscaler.on_workers(Upserted(pool.endpoints()))
    assert pool.bell.is_set()


async def test_to_decisions_a_retired_worker_is_ready(pool: Pool) -> None:
    await pool.wish(2)
    pool.unready = {1}
    pool.cluster.broken["set_scale"] = Unreachable("no route")
    await pool.one()
    assert pool.saw(ReplicaState.READY, 3)
    assert len(pool.workers.loads(str(KEY))) == 3


async def test_a_worker_that_is_needed_again_comes_back_and_nothing_is_ordered(pool: Pool) -> None:
    await pool.wish(2)
    pool.unready = {1}
    await pool.wish(3)
    assert (pool.retired, pool.cluster.written) == ([], [])
    await pool.one()  # its probe has not succeeded yet, and it is no start
    assert pool.saw(ReplicaState.READY, 3)
    await pool.one(BACK_S)
    assert pool.saw(ReplicaState.STARTING, 1)


async def test_also_after_the_scale_was_lowered_as_long_as_it_is_there(pool: Pool) -> None:
    await pool.wish(2)
    pool.unready = {1}
    await pool.one()
    assert pool.cluster.written == [(POOL, 2)]
    await pool.wish(4)
    assert (pool.retired, pool.cluster.written) == ([], [(POOL, 2), (POOL, 4)])


async def test_a_worker_without_the_call_costs_no_wait(tmp_path: Path) -> None:
    pool = Pool(tmp_path / "ledger")
    await pool.open(knows_call=False)
    await pool.wish(2)
    assert pool.cluster.written == [(POOL, 2)]
    await pool.autoscaler.close()


async def test_a_worker_that_cannot_be_reached_costs_no_wait(pool: Pool) -> None:
    deaf = pool.talkers.by_host.pop("10.1.0.1:9000")
    pool.want(2)
    await pool.autoscaler.step()
    assert (deaf.retired, pool.cluster.written) == (None, [(POOL, 2)])


async def test_a_watch_that_does_not_show_it_is_not_waited_for_for_ever(pool: Pool) -> None:
    await pool.wish(2)
    for _ in range(int(UNREADY_LIMIT_S) - 1):
        await pool.one()
    assert pool.cluster.written == []
    await pool.one()
    await pool.one()
    assert pool.cluster.written == [(POOL, 2)]


async def test_a_worker_that_dies_after_it_was_retired_is_the_one_that_goes(pool: Pool) -> None:
    await pool.wish(2)
    pool.there = [0, 2]
    await pool.one()
    assert (pool.retired, pool.cluster.written) == ([], [(POOL, 2)])


async def test_a_conflict_keeps_it_retired_and_the_next_pass_writes(pool: Pool) -> None:
    await pool.wish(2)
    pool.unready = {1}
    pool.cluster.broken["set_scale"] = Conflict("moved")
    await pool.one()
    assert (pool.retired, pool.cluster.written) == ([1], [])
    pool.cluster.broken.clear()
    await pool.one()
    assert pool.cluster.written == [(POOL, 2)]


async def test_an_autoscaler_that_takes_over_continues(pool: Pool, tmp_path: Path) -> None:
    await pool.wish(2)
    other = Pool(tmp_path / "other", "b", pool.cluster)
    pool.cluster.leases.clear()
    for number in pool.there:
        talker = other.talker(number)
        talker.retires, talker.retired = True, pool.talker(number).retired
    other.unready = {1}
    await other.gateways.find()
    await other.wish(2)
    assert (other.retired, other.cluster.written) == ([1], [(POOL, 2)])
    await other.autoscaler.close()


async def test_a_worker_that_the_cluster_keeps_comes_back(pool: Pool) -> None:
    """The cluster removed nothing, or another one."""
    await pool.wish(2)
    pool.unready = {1}
    await pool.one()
    await pool.one(RENEW_LIMIT_S - 3)
    assert pool.retired == [1]
    await pool.one(3)
    assert pool.retired == []


async def test_a_rollout_leaves_the_choice_to_the_cluster(pool: Pool) -> None:
    pool.revisions = {0: "old"}
    await pool.wish(2)
    assert (pool.retired, pool.cluster.written) == ([], [(POOL, 2)])
