"""`kubectl paceline why` and `paceline why`: the question, several autoscalers' answers, the lines."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import ApiServer
from tests.every import cases

from paceline_autoscaler import process
from paceline_cli.commands.decisions import MAX_DECISIONS, decision_query
from paceline_cli.main import plugin
from paceline_core.errors import InvalidInput


def entry(at: int, sentence: str, held: int = 0) -> dict[str, Any]:
    decision = {
        "direction": "up",
        "reason": "demand",
        "sentence": sentence,
        "limit": "none",
        "gaps": [],
        "rejected": [],
    }
    return {"time": f"2026-01-31T12:00:{at:02}Z", "at": at, "kind": "change", "held": held, "decision": decision}


@pytest.fixture
def why(cluster: ApiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., str]:
    kubeconfig = cluster.kubeconfig(tmp_path)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit) as left:
            plugin(["why", "chat", "--kubeconfig", kubeconfig, *arguments])
        out, err = capsys.readouterr()
        assert left.value.code in (None, 0), err
        return out

    return run


def test_entries_of_several_autoscalers_are_merged_by_time(cluster: ApiServer, why: Callable[..., str]) -> None:
    cluster.answers = {"one": [entry(40, "4→5", held=2), entry(10, "1→2")], "two": [entry(30, "3→4"), entry(20, "2→3")]}
    assert why().splitlines() == [
        "source: the ledger of paceline-system/one and paceline-system/two",
        "2026-01-31T12:00:10Z  up    demand: 1→2",
        "2026-01-31T12:00:20Z  up    demand: 2→3",
        "2026-01-31T12:00:30Z  up    demand: 3→4",
        "2026-01-31T12:00:40Z  up    demand: 4→5",
        "    before it, 2 passes decided the same as the one above",
    ]
    assert [line.split()[-1] for line in why("--limit", "2").splitlines()[1:3]] == ["3→4", "4→5"]


def test_what_was_rejected_and_deferred_and_the_forecast_are_shown_below_the_decision(
    cluster: ApiServer, why: Callable[..., str]
) -> None:
    older, newer = entry(10, "1→2"), entry(20, "2→3")
    older["decision"]["rejected"] = ["1: too few"]
    newer["decision"] |= {
        "rejected": [
            {"replicas": 2, "dollars_per_hour": 8.0, "why": "too few"},
            {"replicas": 2, "dollars_per_hour": None, "why": "no price was noted"},
        ],
        "deferred": ["batch", "offline"],
        "reading": {"demand": 2.1, "forecast": {"after_s": 55.0, "p50": 2.5, "p90": 3.125}},
    }
    cluster.answers = {"one": [newer, older]}
    assert [line.strip() for line in why().splitlines() if line.startswith(" ")] == [
        "not 1: too few",
        "not 2 for $8.00 an hour: too few",
        "not 2: no price was noted",
        "deferred: batch, offline",
        "demand in 55 s: p50 2.50, p90 3.12 replica-s/s",
    ]


def test_autoscalers_that_share_a_volume_have_each_entry_once(cluster: ApiServer, why: Callable[..., str]) -> None:
    cluster.answers = {"one": [entry(20, "2→3"), entry(10, "1→2")], "two": [entry(10, "1→2")]}
    assert len(json.loads(why("-o", "json"))["decisions"]) == 2


@pytest.mark.parametrize("answer", [None, b"[{", {"error": "x"}])
def test_an_autoscaler_that_cannot_be_asked_is_named_beside_the_others(
    cluster: ApiServer, why: Callable[..., str], answer: Any
) -> None:
    cluster.answers = {"one": answer, "two": [entry(10, "1→2")]}
    source, decision = why().splitlines()
    assert source.startswith("source: the ledger of paceline-system/two; one cannot be asked (")
    assert decision.endswith("1→2")


def test_since_shows_only_changes_and_says_what_is_left_out(cluster: ApiServer, why: Callable[..., str]) -> None:
    cluster.answers = {"one": [entry(20, "2→3", held=7), entry(10, "1→2")]}
    lines = why("--since", "24h", "--limit", "2").splitlines()
    assert cluster.asked == [
        {"service": "team/chat", "limit": "2", "inputs": "false", "since": "86400", "kind": "change"}
    ]
    assert lines[1:] == [
        "the newest 2; older ones are left out",
        "2026-01-31T12:00:10Z  up    demand: 1→2",
        "2026-01-31T12:00:20Z  up    demand: 2→3",
    ]


def test_for_programs_since_has_every_entry_with_its_inputs(cluster: ApiServer, why: Callable[..., str]) -> None:
    cluster.answers = {"one": [entry(20, "2→3")]}
    why("--since", "2026-01-31T13:00:00+01:00", "-o", "json")
    assert cluster.asked == [{"service": "team/chat", "limit": "2000", "since": "2026-01-31T12:00:00Z"}]


def test_without_a_change_since_then_the_status_answers(cluster: ApiServer, why: Callable[..., str]) -> None:
    cluster.answers = {"one": []}
    assert "one has decided nothing about it since then" in why("--since", "1h")


def test_the_limit_is_that_of_the_autoscaler() -> None:
    assert MAX_DECISIONS == process.MAX_DECISIONS
    assert decision_query("a/b", None, "", inputs=True) == {"service": "a/b", "limit": "10"}


@cases("since", ["yesterday", "24", "2026-01-31T12:00:00", "-1h"])
def test_a_since_that_is_no_time_is_refused_with_the_fix(since: str) -> None:
    with pytest.raises(InvalidInput, match=r"--since: .* write "):
        decision_query("a/b", None, since, inputs=False)
