"""A restart moves nothing if the history survives in any one place: the process, the ConfigMap, Prometheus.

A service has had the same demand for two hours, and three replicas, which its own history calls enough. Who knows
nothing of it plans for what public traces do, and orders more.
"""

import asyncio
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from tests.autoscaler.conftest import Page, until
from tests.autoscaler.fake_cluster import FakeCluster
from tests.autoscaler.gateway_counters import GatewayCounters, counts, prometheus_with
from tests.autoscaler.ledgers import ALL
from tests.autoscaler.test_controller import CHAT, Rig

from paceline_autoscaler.output.ledger_entry import LedgerEntry
from paceline_core.clock import ManualClock

READY, REQUESTS_S, PASS_S = 3, 22, 5
PAST_S, AFTER_S = 7200, 120
BEGIN = datetime(2026, 11, 2, 8, tzinfo=UTC)


@dataclass
class Hours:
    """The service over time, with what its gateway exports."""

    exported: GatewayCounters = field(default_factory=GatewayCounters)

    async def go_on(self, rig: Rig, seconds: int) -> None:
        """The same demand for so many seconds, a pass every PASS_S."""
        for _ in range(seconds // PASS_S):
            rig.clock.advance(PASS_S - 1)
            await rig.hear(READY, REQUESTS_S * PASS_S)
            self.exported.add(counts(REQUESTS_S * PASS_S, output=1))
            self.exported.scrape(rig.clock.utc().timestamp())
            await rig.measures.round(rig.autoscaler.cluster_view.specs.values())
            await rig.autoscaler.step()


def rig_at(begin: datetime, cluster: FakeCluster | None = None, prometheus: str = "") -> Rig:
    """An autoscaler that starts then, beside a cluster that may have been scaled and remember states."""
    return Rig(cluster=cluster, name=f"since {begin}", clock=ManualClock(begin), prometheus=prometheus)


def latest(rig: Rig) -> LedgerEntry:
    return next(rig.deps.ledger.newest(ALL))


def decided(rig: Rig) -> tuple[int, str, str]:
    """The last decision: replicas, reason and limit."""
    decision = latest(rig).decision
    return decision.replicas, decision.reason, decision.limit


@dataclass
class Before:
    """The end of these hours: the cluster, the first process, its last decision, and what Prometheus has scraped."""

    cluster: FakeCluster
    rig: Rig
    hours: Hours

    @property
    def end(self) -> datetime:
        return self.rig.clock.utc() + timedelta(seconds=PASS_S)


@pytest.fixture
async def before() -> Before:
    rig, hours = rig_at(BEGIN), Hours()
    await rig.start(READY)
    await hours.go_on(rig, PAST_S)
    assert decided(rig) == (READY, "steady", "none")
    rig.cluster.written.clear()
    return Before(rig.cluster, rig, hours)


async def restarted(before: Before, prometheus: str = "") -> Rig:
    """The next process, after AFTER_S of the same demand. Its first pass comes before anyone has reported."""
    before.cluster.leases.clear()
    heir = rig_at(before.end, before.cluster, prometheus)
    running = asyncio.create_task(heir.past.run()) if heir.past else None
    await heir.find(READY)
    await heir.autoscaler.step()
    for _ in range(AFTER_S // PASS_S):
        await before.hours.go_on(heir, PASS_S)
        await _answered(heir)
    if running is not None:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return heir


async def _answered(rig: Rig) -> None:
    """Real time for Prometheus: a pass waits for nothing, and the clock of passes stands still meanwhile."""

    async def idle() -> bool:
        return rig.past is None or rig.past.idle

    await until(idle, bool)


async def test_who_knows_nothing_of_it_orders_more(before: Before) -> None:
    """Else the others would prove nothing."""
    before.cluster.states.clear()
    heir = await restarted(before)
    assert before.cluster.written
    assert decided(heir)[0] > READY


async def test_the_process_itself_remembers(before: Before) -> None:
    before.cluster.states.clear()
    await before.hours.go_on(before.rig, AFTER_S)
    assert before.cluster.written == []
    assert decided(before.rig) == (READY, "steady", "none")


async def test_the_config_map_remembers(before: Before) -> None:
    await before.rig.autoscaler.close()
    assert CHAT in before.cluster.states
    heir = await restarted(before)
    assert before.cluster.written == []
    assert decided(heir) == (READY, "steady", "none")


@pytest.mark.real
async def test_prometheus_remembers(before: Before, tmp_path: Path) -> None:
    before.cluster.states.clear()
    with prometheus_with(tmp_path, [before.hours.exported]) as url:
        heir = await restarted(before, url)
    assert before.cluster.written == []
    assert decided(heir) == (READY, "steady", "none")
    assert latest(heir).knowledge.history("both").known > 110


async def test_a_prometheus_that_does_not_answer_delays_no_decision(before: Before, page: Page) -> None:
    before.cluster.states.clear()
    before.cluster.leases.clear()
    page.stall = threading.Event()
    heir = rig_at(before.end, before.cluster, page.url)
    assert heir.past is not None
    running = asyncio.create_task(heir.past.run())
    await heir.find(READY)
    await before.hours.go_on(heir, 4 * PASS_S)
    assert not heir.past.idle
    assert len([*heir.deps.ledger.newest(ALL)]) > 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.mark.real
async def test_prometheus_tells_what_came_after_the_last_write(before: Before, tmp_path: Path) -> None:
    """A process that is killed has stored its history some time ago."""
    with prometheus_with(tmp_path, [before.hours.exported]) as url:
        heir = await restarted(before, url)
    codes = latest(heir).knowledge.history("both").codes
    assert codes.count(0) <= 3
    assert len(codes) > 110
    assert before.cluster.written == []
