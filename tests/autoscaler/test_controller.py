"""The loop over a cluster in memory: what is written, when, and what happens when something cannot be."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.autoscaler.fake_cluster import FakeCluster
from tests.autoscaler.ledgers import ALL, VOLUME, entries_in
from tests.autoscaler.talkers import Talker, Talkers, demand_report, eventually, load_report
from tests.autoscaler.test_scaling_goals import manifest

from paceline_autoscaler.controller import LEASE, LEASE_TTL_S, NOT_CREATED_PAUSE_S, NOT_CREATED_S, Autoscaler, Signals
from paceline_autoscaler.metrics_source.base import Empty, Increase, MetricSample, Query, QueryAnswer, Value
from paceline_autoscaler.metrics_source.prometheus import PrometheusSource
from paceline_autoscaler.output.ledger import Ledger
from paceline_autoscaler.output.ledger_files import LedgerFiles
from paceline_autoscaler.output.replay import replay
from paceline_autoscaler.output.scale_writer import ScaleWriter
from paceline_autoscaler.service_scaler import ScalerDeps
from paceline_autoscaler.signals import GatewayDemand, WorkerLoads
from paceline_autoscaler.signals.attainment import AttainmentPoller
from paceline_autoscaler.signals.past_demand import PastDemand
from paceline_autoscaler.types import unix_clock
from paceline_core.clock import ManualClock, rfc3339
from paceline_core.errors import Conflict, Unreachable
from paceline_core.kube import (
    Deleted,
    Endpoint,
    Listed,
    ObjectKey,
    ScaleTarget,
    ServiceEndpoints,
    ServiceRef,
    Upserted,
    WatchLost,
)
from paceline_core.telemetry import Metrics

KEY = ObjectKey("default", "chat")
CHAT = ServiceRef(KEY, "")
POOL = ScaleTarget(KEY, "main")
PLACE = ("main", "stable", "r")
SLO = {"interactive": {"slo": {"ttft": {"p95": "500ms"}}}}


class Kept:
    """A source that says the promise is kept, and `ttft_s` of every quantile; no quantile of a `quiet` service."""

    address = "http://prometheus:9090"
    ttft_s = 0.2
    quiet = False

    async def ask(self, question: Query) -> QueryAnswer:
        if self.quiet and not isinstance(question, Increase):
            return Empty()
        labels = {"class": "interactive", "slo": "ttft_p95", "verdict": "good"}
        return Value((MetricSample(labels, 100.0 if isinstance(question, Increase) else self.ttft_s),), 0.5)

    async def run(self) -> None:
        return


class Rig:
    """One autoscaler, everything round it in memory. `demand` and `workers` set what it hears."""

    def __init__(
        self,
        ledger: Path | None = None,
        cluster: FakeCluster | None = None,
        name: str = "a",
        clock: ManualClock | None = None,
        prometheus: str = "",
    ) -> None:
        self.clock = clock or ManualClock()
        self.talkers = Talkers({"10.0.0.1:81": Talker()}, self.clock)
        self.cluster = cluster or FakeCluster(scales={})
        self.metrics = Metrics("autoscaler")
        self.bell = asyncio.Event()
        now = unix_clock(self.clock)
        kept = Ledger(LedgerFiles(ledger, VOLUME) if ledger else None)
        self.past = PastDemand(PrometheusSource(prometheus), self.clock, self.metrics) if prometheus else None
        writer, calls = ScaleWriter(self.cluster, self.metrics), self.talkers.retire_client()
        self.deps = ScalerDeps(writer, kept, self.metrics, self.clock, now, calls, self.past)
        link = self.talkers.link()
        self.gateways = GatewayDemand(["gateway:81"], link, now, self.bell.set, self._resolve)
        self.workers = WorkerLoads(link)
        self.source = Kept()
        self.measures = AttainmentPoller(self.source, self.clock, self.metrics, 5.0)
        senses = Signals(self.gateways, self.workers, self.measures, self.bell)
        self.autoscaler = Autoscaler(name, self.cluster, senses, self.deps, 5.0)
        self.arrivals = 0

    async def _resolve(self, host: str, port: int) -> tuple[str, ...]:
        return ("10.0.0.1",)

    async def start(self, ready: int = 1, desired: int | None = None, **spec: Any) -> None:
        """One service with so many ready workers, its gateway heard."""
        self.cluster.move(POOL, ready if desired is None else desired)
        await self.find(ready, **spec)
        await self.hear(ready)

    async def find(self, ready: int, **spec: Any) -> None:
        """The service, its gateway and so many workers are known, and none of them has said anything yet."""
        self.autoscaler.cluster_view.on_service(Listed((manifest(classes=SLO, **spec),)))
        await self.gateways.find()
        self.list_workers(ready)

    async def see(self, ready: int) -> None:
        """So many workers are ready, and have said so."""
        self.list_workers(ready)
        await self.hear(ready)

    def list_workers(self, ready: int) -> None:
        created = rfc3339(self.clock.utc())
        hosts = [f"10.1.0.{n}" for n in range(ready)]
        rows = (Endpoint(f"main-{n}", *PLACE, host, 9000, True, created=created) for n, host in enumerate(hosts))
        self.autoscaler.on_workers(Listed((ServiceEndpoints(KEY, tuple(rows)),)))

    async def hear(self, ready: int, requests: int = 0, **row: Any) -> None:
        """A second in which so many requests of 4000 prompt tokens came."""
        self.clock.advance(1)
        self.arrivals += requests
        counted: dict[str, Any] = {
            "arrivals": self.arrivals,
            "prompt_tokens": self.arrivals * 4000,
            "completed": self.arrivals,
        }
        self.talkers["10.0.0.1:81"].say(demand_report(output_tokens=self.arrivals, **counted, **row))
        for n in range(ready):
            self.talkers[f"10.1.0.{n}:9000"].say(load_report(f"main-{n}", slots=64))
        now = self.clock.monotonic()
        received = self.gateways._streams.received
        await eventually(lambda: any(last.at >= now for last in received.values()))
        await eventually(lambda: len(self.workers.loads(str(KEY))) == ready)

    async def seconds(self, count: int, ready: int, requests: int = 0) -> None:
        """So many seconds alike, with a pass and a round of questions after each."""
        for _ in range(count):
            await self.hear(ready, requests)
            await self.measures.round(self.autoscaler.cluster_view.specs.values())
            await self.autoscaler.step()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    made = Rig(tmp_path / "ledger")
    yield made
    await made.autoscaler.close()


def exported(rig: Rig, line: str) -> bool:
    return line in rig.metrics.exposition("")[0].decode()


async def test_demand_becomes_replicas_status_event_and_ledger(rig: Rig, tmp_path: Path) -> None:
    await rig.start()
    await rig.seconds(6, ready=1, requests=25)
    ordered = rig.cluster.scales[POOL].replicas
    ups = [event for event in rig.cluster.events if event.reason == "ScaledUp"]
    assert ups[0].message.startswith(f"1→{ordered}: demand 2.50 replica-s/s may need")
    key, status = rig.cluster.statuses[-1]
    assert key == KEY
    assert status["scaling"]["desired"] == ordered
    entries = entries_in(tmp_path / "ledger" / "default.chat.jsonl")
    assert any(entry.decision.direction == "up" for entry in entries)
    assert replay(entries) == []
    assert exported(
        rig, 'paceline_autoscaler_replicas{pisvc="chat",pisvc_namespace="default",pool="main",state="ready"} 1'
    )


async def test_a_conflict_is_decided_anew_on_the_next_pass(rig: Rig) -> None:
    await rig.start()
    rig.cluster.broken["set_scale"] = Conflict("moved")
    await rig.seconds(3, ready=1, requests=25)
    assert rig.cluster.written == []
    assert not any(event.reason == "ScaledUp" for event in rig.cluster.events)
    assert exported(rig, 'paceline_autoscaler_actuation_errors_total{pisvc="chat",pisvc_namespace="default"} 0.0')
    rig.cluster.broken.clear()
    rig.cluster.move(POOL, 2)
    await rig.seconds(1, ready=1, requests=25)
    assert rig.cluster.written
    assert rig.cluster.written[0][1] > 2


async def test_a_cluster_that_does_not_answer_is_asked_again_and_counted(rig: Rig) -> None:
    await rig.start()
    rig.cluster.broken["get_scale"] = Unreachable("no route")
    await rig.seconds(2, ready=1, requests=25)
    assert [*rig.deps.ledger.newest(ALL)] == []
    assert exported(rig, 'paceline_autoscaler_actuation_errors_total{pisvc="chat",pisvc_namespace="default"} 2.0')
    rig.cluster.broken.clear()
    await rig.seconds(3, ready=1, requests=25)
    assert rig.cluster.written


async def test_a_status_that_cannot_be_written_keeps_nobody_from_scaling(rig: Rig) -> None:
    await rig.start()
    rig.cluster.broken["patch_status"] = Unreachable("no route")
    await rig.seconds(4, ready=1, requests=25)
    assert rig.cluster.written


async def test_a_pool_that_is_not_made_yet_is_waited_for(rig: Rig) -> None:
    await rig.start()
    rig.cluster.scales.clear()
    await rig.seconds(2, ready=1, requests=25)
    assert [*rig.deps.ledger.newest(ALL)] == []
    assert not exported(rig, "paceline_autoscaler_actuation_errors_total{")


async def test_one_service_that_breaks_does_not_break_the_others(rig: Rig) -> None:
    await rig.start()
    other = manifest(classes=SLO)
    other["metadata"]["name"] = "other"
    rig.autoscaler.cluster_view.on_service(Listed((other, manifest(classes=SLO))))
    rig.cluster.broken["get_scale default/other"] = RuntimeError("a bug")
    await rig.seconds(4, ready=1, requests=25)
    assert rig.cluster.written
    assert exported(rig, 'paceline_autoscaler_actuation_errors_total{pisvc="other",pisvc_namespace="default"}')
    assert exported(rig, "paceline_autoscaler_last_success_timestamp_seconds 0.0")


async def test_who_does_not_hold_the_lease_only_listens(rig: Rig) -> None:
    rig.cluster.leases[LEASE] = "somebody else"
    await rig.start()
    await rig.seconds(4, ready=1, requests=25)
    assert (rig.cluster.written, rig.cluster.statuses) == ([], [])
    del rig.cluster.leases[LEASE]
    await rig.seconds(1, ready=1, requests=25)
    assert rig.cluster.written


async def test_a_lease_that_cannot_be_renewed_is_ours_until_it_runs_out(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(1, ready=1)
    rig.cluster.broken["lease"] = Unreachable("no route")
    await rig.seconds(10, ready=1, requests=25)
    assert rig.cluster.written
    rig.cluster.written.clear()
    rig.clock.advance(LEASE_TTL_S)
    rig.cluster.move(POOL, 1)
    await rig.seconds(3, ready=1, requests=25)
    assert rig.cluster.written == []


async def test_what_was_learned_is_found_by_the_next_one(rig: Rig) -> None:
    await rig.start(ready=3)
    await rig.seconds(100, ready=3, requests=1)
    await rig.autoscaler.close()
    assert CHAT in rig.cluster.states
    heir = Rig(cluster=rig.cluster, name="b")
    heir.clock.advance(rig.clock.monotonic())
    await heir.start(ready=3)
    await heir.seconds(30, ready=3, requests=1)
    fresh = Rig(cluster=FakeCluster(), name="c")
    await fresh.start(ready=3)
    await fresh.seconds(30, ready=3, requests=1)
    assert heir.cluster.scales[POOL].replicas < 3
    assert fresh.cluster.scales[POOL].replicas == 3
    await heir.autoscaler.close()
    await fresh.autoscaler.close()


@pytest.mark.parametrize("stored", [{"state": "nonsense"}, {"state": '{"learned": {"starts": "long"}}'}, {}])
async def test_learned_state_that_cannot_be_read_starts_anew(rig: Rig, stored: dict[str, str]) -> None:
    rig.cluster.states[CHAT] = stored
    await rig.start()
    await rig.seconds(1, ready=1)
    assert [*rig.deps.ledger.newest(ALL)]


GONE = ServiceRef(ObjectKey("default", "gone"), "u1")
REPLACED = ServiceRef(KEY, "of one that had the name before")


async def test_the_state_of_services_that_are_gone_is_deleted_and_no_other(rig: Rig) -> None:
    rig.cluster.states = {each: {"state": "{}"} for each in (GONE, REPLACED, CHAT)}
    await rig.start()
    await rig.seconds(1, ready=1)
    assert set(rig.cluster.states) == {CHAT}
    await rig.seconds(40, ready=1)
    rig.autoscaler.on_service(Deleted(manifest(classes=SLO)))
    await rig.seconds(1, ready=1)
    assert rig.cluster.states == {}


async def test_while_services_are_not_current_no_state_is_deleted(rig: Rig) -> None:
    await rig.start()
    rig.autoscaler.on_service(WatchLost("connection refused"))
    rig.cluster.states = {GONE: {"state": "{}"}}
    await rig.seconds(2, ready=1)
    assert set(rig.cluster.states) == {GONE}
    rig.autoscaler.on_service(Listed((manifest(classes=SLO),)))
    await rig.seconds(1, ready=1)
    assert rig.cluster.states == {}


async def test_a_service_that_is_not_understood_keeps_its_state(rig: Rig) -> None:
    newer = manifest(classes=SLO)
    newer["metadata"] = {**newer["metadata"], "name": "newer", "uid": "u2"}
    newer["spec"] = "what a later version writes"
    kept = ServiceRef(ObjectKey("default", "newer"), "u2")
    rig.cluster.states = {kept: {"state": "{}"}}
    await rig.start()
    rig.autoscaler.on_service(Listed((manifest(classes=SLO), newer)))
    await rig.seconds(2, ready=1)
    assert kept in rig.cluster.states


async def test_one_that_does_not_lead_deletes_no_state(rig: Rig) -> None:
    rig.cluster.leases[LEASE] = "somebody else"
    rig.cluster.states = {GONE: {"state": "{}"}}
    await rig.start()
    await rig.seconds(2, ready=1)
    assert set(rig.cluster.states) == {GONE}


async def test_an_object_made_anew_under_the_same_name_is_another_service(rig: Rig) -> None:
    await rig.start(ready=3)
    await rig.seconds(3, ready=3)
    (before,) = rig.deps.ledger.newest(ALL)
    rig.cluster.states.clear()
    anew = manifest(classes=SLO)
    anew["metadata"]["uid"] = "another"
    rig.autoscaler.cluster_view.on_service(Listed((anew,)))
    await rig.seconds(1, ready=3)
    after = next(rig.deps.ledger.newest(ALL))
    assert after.kind == "change"
    assert after.state == before.state


async def test_the_ledger_of_a_deleted_service_is_deleted_and_no_other(rig: Rig, tmp_path: Path) -> None:
    folder = tmp_path / "ledger"
    folder.mkdir()
    (folder / "default.gone.jsonl").touch()
    await rig.start()
    await rig.seconds(2, ready=1)
    assert [path.name for path in folder.iterdir()] == ["default.chat.jsonl"]
    rig.autoscaler.on_service(Deleted(manifest(classes=SLO)))
    await rig.autoscaler.step()
    assert [*folder.iterdir()] == []


async def test_one_that_does_not_lead_any_more_keeps_its_ledger(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(2, ready=1)
    rig.cluster.leases[LEASE] = "somebody else"
    await rig.seconds(round(LEASE_TTL_S) + 2, ready=1)
    assert [entry.kind for entry in rig.deps.ledger.newest_of(str(KEY), ALL)] == ["change"]
    del rig.cluster.leases[LEASE]
    await rig.seconds(round(LEASE_TTL_S) + 2, ready=1)
    assert [entry.kind for entry in rig.deps.ledger.newest_of(str(KEY), ALL)] == ["change"] * 2


async def test_a_service_that_is_gone_leaves_no_series(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(2, ready=1)
    assert exported(rig, 'pisvc="chat"')
    rig.autoscaler.cluster_view.on_service(Deleted(manifest()))
    await rig.autoscaler.step()
    assert not exported(rig, 'pisvc="chat"')


async def test_nothing_is_released_while_the_workers_watch_is_broken(rig: Rig) -> None:
    await rig.start(ready=3)
    await rig.seconds(20, ready=3)
    rig.autoscaler.on_workers(WatchLost("closed"))
    await rig.seconds(60, ready=3)
    assert rig.cluster.scales[POOL].replicas == 3
    status = rig.cluster.statuses[-1][1]
    fresh = next(row for row in status["conditions"] if row["type"] == "MetricsFresh")
    assert (fresh["status"], fresh["reason"]) == ("False", "EndpointsMissing")


async def test_before_services_are_listed_nothing_is_done(rig: Rig) -> None:
    await rig.autoscaler.step()
    assert rig.cluster.leases == {}
    assert not rig.autoscaler.ready


async def test_a_pause_that_is_changed_is_reported_at_once_and_once(rig: Rig) -> None:
    await rig.start()
    for text in ("2030-01-01T00:00:00Z", "tomorrow"):
        annotated = manifest(classes=SLO, annotations={"paceline.dev/pause-until": text})
        rig.autoscaler.on_service(Listed((annotated,)))
        await rig.seconds(1, ready=1)
        rows = {row["type"]: row for row in rig.cluster.statuses[-1][1]["conditions"]}
        assert text in rows["Paused"]["message"]
        assert text in rig.cluster.statuses[-1][1]["scaling"]["decision"]
        written = len(rig.cluster.statuses)
        await rig.seconds(4, ready=1)
        assert len(rig.cluster.statuses) == written


async def test_the_sentence_follows_who_is_ready(rig: Rig) -> None:
    pools = [{"name": "main", "accelerator": "h100", "replicas": {"min": 2, "max": 4}}]
    await rig.start(ready=1, desired=2, pools=pools)
    await rig.seconds(3, ready=1)
    assert "1 ready, 1 starting" in rig.cluster.statuses[-1][1]["scaling"]["decision"]
    await rig.see(2)
    await rig.seconds(1, ready=2)
    scaling = rig.cluster.statuses[-1][1]["scaling"]
    assert scaling["decision"].endswith("2 ready")
    written = len(rig.cluster.statuses)
    await rig.seconds(10, ready=2)
    assert len(rig.cluster.statuses) <= written + 1


async def test_an_outage_is_reported_while_it_lasts(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(3, ready=1)
    await rig.see(0)
    await rig.seconds(1, ready=0)
    assert "0 ready" in rig.cluster.statuses[-1][1]["scaling"]["decision"]
    told = [(entry.observation.pools[0].ready, entry.decision.reason) for entry in rig.deps.ledger.newest(ALL)]
    assert told == [(0, "steady"), (1, "steady")]


async def test_a_limit_that_begins_to_bind_is_an_event(rig: Rig) -> None:
    await rig.start(pools=[{"name": "main", "accelerator": "h100", "replicas": {"min": 1, "max": 1}}])
    await rig.seconds(5, ready=1, requests=25)
    limited = [event for event in rig.cluster.events if event.reason == "ScalingLimited"]
    assert len(limited) == 1
    assert (limited[0].type, "max of main is 1" in limited[0].message) == ("Warning", True)


async def test_cost_runs_with_replicas_and_time(rig: Rig) -> None:
    await rig.start(ready=2)
    await rig.seconds(11, ready=2)
    line = 'paceline_cost_dollars_total{pisvc="chat",pisvc_namespace="default"} '
    text = rig.metrics.exposition("")[0].decode()
    (value,) = [float(row.removeprefix(line)) for row in text.splitlines() if row.startswith(line)]
    assert value == pytest.approx(2 * 3.93 * 10 / 3600)


async def test_at_the_end_the_lease_is_given_back_and_the_state_stored(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(1, ready=1)
    await rig.autoscaler.close()
    assert rig.cluster.leases == {}
    assert CHAT in rig.cluster.states


class SteppedClock(ManualClock):
    """A clock whose sleepers sleep until the test has moved it far enough."""

    def __init__(self) -> None:
        super().__init__()
        self._sleepers: list[tuple[float, asyncio.Event]] = []

    def advance(self, seconds: float) -> None:
        super().advance(seconds)
        for due, event in self._sleepers:
            if due <= self.monotonic():
                event.set()

    async def sleep(self, seconds: float) -> None:
        event = asyncio.Event()
        self._sleepers.append((self.monotonic() + seconds, event))
        await event.wait()


async def test_a_held_request_is_answered_before_the_interval_is_over() -> None:
    """From the report to the order no more than the least pause passes, on a clock that the test moves."""
    clock = SteppedClock()
    rig = Rig(clock=clock)
    gateway = rig.talkers["10.0.0.1:81"]
    rig.cluster.move(POOL, 0)
    pools = [{"name": "main", "accelerator": "h100", "replicas": {"min": 0, "max": 4}}]
    sleepy = manifest(classes=SLO, pools=pools, scaling={"scaleToZero": {}})
    rig.cluster.queue("InferenceService").put_nowait(Listed((sleepy,)))
    rig.cluster.workers.put_nowait(Listed(()))
    running = asyncio.create_task(rig.autoscaler.run())
    await eventually(lambda: rig.autoscaler.ready and bool(rig.gateways.hosts))
    for seconds in (0.1, 5.0):
        clock.advance(seconds)
        await turns()
    assert [*rig.deps.ledger.newest(ALL)]
    assert rig.cluster.written == []
    gateway.say(demand_report(held=1, queued=1))
    await eventually(rig.bell.is_set)
    clock.advance(0.1)
    await eventually(lambda: bool(rig.cluster.written))
    assert rig.cluster.written == [(POOL, 1)]
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await rig.autoscaler.close()


async def turns() -> None:
    """Let every task go as far as it can without the clock."""
    for _ in range(200):
        await asyncio.sleep(0)


async def test_a_new_service_is_passed_at_once_and_again_soon_until_its_deployments_are_made(rig: Rig) -> None:
    assert not rig.bell.is_set()
    rig.autoscaler.on_workers(Listed(()))
    rig.autoscaler.on_service(Listed((manifest(classes=SLO),)))
    assert rig.bell.is_set()
    await rig.autoscaler.step()
    assert rig.cluster.statuses == []
    assert rig.autoscaler.pause_s() == NOT_CREATED_PAUSE_S
    rig.cluster.move(POOL, 1)
    await rig.autoscaler.step()
    _, status = rig.cluster.statuses[-1]
    assert (status["scaling"]["desired"], status["scaling"]["promise"]) == (1, "ttft p95 -/500ms")
    assert status["cost"] == {"perHour": "0.00"}
    assert rig.autoscaler.pause_s() == 5.0


async def test_a_service_that_never_gets_deployments_does_not_keep_the_loop_busy(rig: Rig) -> None:
    rig.autoscaler.on_workers(Listed(()))
    rig.autoscaler.on_service(Listed((manifest(classes=SLO),)))
    await rig.autoscaler.step()
    rig.clock.advance(NOT_CREATED_S)
    assert rig.autoscaler.pause_s() == 5.0


async def test_a_worker_that_ended_is_reported_by_the_leading_autoscaler_once(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(1, ready=1)
    row = Endpoint("main-0", *PLACE, "10.1.0.0", 9000, True, restarts=1, ended="out of memory")
    rig.autoscaler.on_workers(Upserted(ServiceEndpoints(KEY, (row,))))
    await rig.autoscaler.step()
    await rig.autoscaler.step()
    told = [event.message for event in rig.cluster.events if event.reason == "WorkerEnded"]
    assert told == ["Worker main-0 of pool main ended (out of memory) and is started again; restart 1."]
