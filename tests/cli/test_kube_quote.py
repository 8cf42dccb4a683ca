"""`kubectl paceline quote`: prices by what the autoscaler last observed."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.autoscaler.factories import decide, observation, seasoned
from tests.autoscaler.test_feasibility import LEARNED
from tests.cli.conftest import ApiServer

from paceline_autoscaler.output.ledger_entry import LedgerEntry, entry_json
from paceline_autoscaler.state import Knowledge, LearnedState
from paceline_cli.main import plugin

SLO = ("--slo", "ttft:p95=1s,tpot:p95=100ms")


def entry(learned: LearnedState) -> dict[str, Any]:
    seen = observation()
    state = seasoned(seen, 60)
    made = LedgerEntry("change", 0, replace(state, learned=learned), Knowledge(), seen, decide(seen, state)[0])
    return dict(json.loads(entry_json(made)))


@pytest.fixture
def quote(cluster: ApiServer, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Callable[..., tuple[int, str]]:
    kubeconfig = cluster.kubeconfig(tmp_path)

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as left:
            plugin(["quote", "chat", "--kubeconfig", kubeconfig, *arguments])
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out + err

    return run


def test_the_observed_lengths_and_speeds_price_every_quantile(
    cluster: ApiServer, quote: Callable[..., tuple[int, str]]
) -> None:
    cluster.answers = {"one": [entry(LEARNED)]}
    _, text = quote(*SLO, "--rps", "3")
    lines = text.splitlines()
    assert lines[0].startswith("team/chat: 3 requests/s of 4,000 prompt and 200 output tokens")
    assert lines[1].endswith("on replicas of pool main")
    assert [line.split()[0] for line in lines[3:]] == ["90%", "95%", "99%", "99.9%"]
    assert cluster.asked == [{"service": "team/chat", "limit": "1"}]


def test_json_has_numbers(cluster: ApiServer, quote: Callable[..., tuple[int, str]]) -> None:
    cluster.answers = {"one": [entry(LEARNED)]}
    _, text = quote(*SLO, "--rps", "3", "--osl", "100", "-o", "json")
    found = json.loads(text)
    assert (found["load"]["prompt"], found["load"]["output"]) == (4000, 100)
    assert found["quotes"][0]["dollars_per_hour"] == pytest.approx(4.0 * found["quotes"][0]["replicas"])


def test_what_was_not_observed_is_asked_for(cluster: ApiServer, quote: Callable[..., tuple[int, str]]) -> None:
    cluster.answers = {"one": [entry(replace(LEARNED, completed=None))]}
    assert quote(*SLO, "--rps", "3") == (
        2, "error: --prompt: no request was answered lately; give --prompt and --osl in tokens\n"
    )  # fmt: skip
    assert "1,000 prompt and 50 output" in quote(*SLO, "--rps", "3", "--prompt", "1000", "--osl", "50")[1]
    assert "error: --slo: class interactive of team/chat promises neither" in quote("--rps", "3")[1]


def test_a_service_without_speeds_or_decisions_says_so(
    cluster: ApiServer, quote: Callable[..., tuple[int, str]]
) -> None:
    cluster.answers = {"one": [entry(replace(LEARNED, speeds=()))]}
    assert "has reported its step time yet" in quote(*SLO, "--rps", "3")[1]
    cluster.answers = {"one": []}
    assert "error: what was observed of team/chat cannot be read: one has decided nothing" in quote(*SLO)[1]
