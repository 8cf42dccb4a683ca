"""Reading the autoscaler's ledger after a run."""

from pathlib import Path

import pytest

from paceline_autoscaler.output.ledger import Ledger
from paceline_autoscaler.output.ledger_entry import LedgerEntry, encode
from paceline_autoscaler.output.ledger_files import LedgerFiles
from paceline_autoscaler.policies import decide
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import ClassSignals, Demand, Observation, PoolSpec, PoolStatus, RateWindow, ScalingSpec
from paceline_cli.bench.observation import decisions_since
from paceline_core.registry import RequestClass


def seen(now: float, service: str = "default/chat") -> Observation:
    """One pool of one replica, whose minimum has just become two."""
    pool = PoolSpec("main", "both", min=2, max=4, gpus=1, dollars_per_hour=1.0)
    goal = ScalingSpec(service, "fixed", (), (pool,), step_tokens=2048, start_prior_s=20.0, drain_limit_s=300.0)
    demand = Demand(1, 1, (ClassSignals(RequestClass.INTERACTIVE, (RateWindow(10.0, now / 200, 500.0),)),))
    return Observation(now, goal, demand, (PoolStatus("main", 1),), None)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    kept = Ledger(LedgerFiles(tmp_path, limit=1 << 20))
    for now, service in ((1000.0, "default/chat"), (1030.0, "default/other"), (1070.0, "default/chat")):
        observation = seen(now, service)
        kept.add(State(), Knowledge(), observation, decide(observation, State(), Knowledge())[0])
    return tmp_path


def test_decisions_are_the_services_own_since_the_start_and_replayed(ledger: Path) -> None:
    found = decisions_since(ledger, "default/chat", start=1010.0)
    assert found is not None
    assert [(row.at, row.direction, row.reason, row.replicas) for row in found.rows] == [(60.0, "up", "bounds", 2)]
    assert found.different == 0
    assert found.rows[0].sentence.startswith("1→2")


def test_a_decision_at_the_start_itself_belongs_to_the_run(ledger: Path) -> None:
    found = decisions_since(ledger, "default/chat", start=1070.0)
    assert found is not None
    assert [row.at for row in found.rows] == [0.0]


def test_a_decision_that_does_not_replay_is_counted(ledger: Path) -> None:
    path = ledger / "default.chat.jsonl"
    path.write_text(path.read_text().replace('"replicas":2', '"replicas":3'))
    found = decisions_since(ledger, "default/chat", start=0.0)
    assert found is not None
    assert found.different == len(found.rows) == 2


def test_a_ledger_that_was_rotated_during_the_run_is_read_whole(tmp_path: Path) -> None:
    decision = decide(seen(0.0), State(), Knowledge())[0]
    size = 2 * len(encode(LedgerEntry("change", 0, State(), Knowledge(), seen(0.0), decision))[1])
    kept = Ledger(LedgerFiles(tmp_path, limit=1 << 20, file_limit=2 * size))
    for number in range(5):
        observation = seen(1000.0 + 700 * number)
        kept.add(State(), Knowledge(), observation, decide(observation, State(), Knowledge())[0])
    assert len([*tmp_path.iterdir()]) == 2
    found = decisions_since(tmp_path, "default/chat", start=1000.0)
    assert found is not None
    assert [row.at for row in found.rows] == [0.0, 700.0, 1400.0, 2100.0, 2800.0]


@pytest.mark.parametrize("content", [None, "no ledger\n"])
def test_without_a_whole_ledger_nothing_is_known(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "default.chat.jsonl").write_text(content)
    assert decisions_since(tmp_path, "default/chat", start=0.0) is None
