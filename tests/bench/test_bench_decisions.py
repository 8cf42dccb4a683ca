"""Reading the autoscaler's ledger after a run."""

from pathlib import Path

import pytest

from paceline_autoscaler.output.decision_log import DecisionLog
from paceline_autoscaler.policies import decide
from paceline_autoscaler.types import (
    ClassSignals,
    Demand,
    LearnedState,
    Observation,
    PoolSpec,
    PoolStatus,
    RateWindow,
    ScalingSpec,
)
from paceline_cli.bench.observation import decisions_since
from paceline_core.registry import RequestClass


def seen(now: float, service: str = "default/chat") -> Observation:
    """One pool of one replica, whose minimum has just become two."""
    pool = PoolSpec("main", "both", min=2, max=4, gpus=1, dollars_per_hour=1.0)
    goal = ScalingSpec(service, "fixed", (), (pool,), step_tokens=2048, start_prior_s=20.0, drain_limit_s=300.0)
    demand = Demand(1, 1, (ClassSignals(RequestClass.INTERACTIVE, (RateWindow(10.0, 5.0, 500.0),)),))
    return Observation(now, goal, demand, (PoolStatus("main", 1),), None)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    path = tmp_path / "ledger.jsonl"
    book = DecisionLog(path)
    for now, service in ((1000.0, "default/chat"), (1030.0, "default/other"), (1070.0, "default/chat")):
        observation = seen(now, service)
        book.add(LearnedState(), observation, decide(observation, LearnedState())[0])
    return path


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
    ledger.write_text(ledger.read_text().replace('"replicas":2', '"replicas":3'))
    found = decisions_since(ledger, "default/chat", start=0.0)
    assert found is not None
    assert found.different == len(found.rows) == 2


@pytest.mark.parametrize("content", [None, "no ledger\n"])
def test_without_a_ledger_nothing_is_known(tmp_path: Path, content: str | None) -> None:
    path = tmp_path / "ledger.jsonl"
    if content is not None:
        path.write_text(content)
    assert decisions_since(path, "default/chat", start=0.0) is None
