"""`what-if` as a user calls it: the question, what an autoscaler has learned, the table and the JSON."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console
from tests.cli.conftest import ApiServer
from tests.every import cases
from tests.simulator.test_what_if import MANIFEST, past

from paceline_autoscaler.output.scale_writer import StoredState, stored_texts
from paceline_autoscaler.state import Knowledge, State
from paceline_cli.main import plugin
from paceline_cli.what_if.command import what_if_of
from paceline_cli.what_if.question import Question
from paceline_cli.what_if.runs import Compared, WhatIfAnswer, _compared_runs, _compared_spans
from paceline_cli.what_if.table import document, render
from paceline_core.errors import InvalidInput, PacelineError
from paceline_core.registry import RequestClass
from paceline_simulator.what_if_outcome import ExactRun, FluidSpan, WhatIfOutcome

TEAM = yaml.safe_load(MANIFEST.replace("namespace: default", "namespace: team"))
"""The service of the API server, whose own document has no promise."""


def learned(minutes: float = 12.0, **changes: Any) -> dict[str, Any]:
    """What `/debug/learned` answers."""
    known = past(minutes, level=1.0, **changes)
    stored = StoredState(State(learned=known.learned), Knowledge((("both", known.history),)), known.lengths)
    return {
        "service": "team/chat",
        "now": known.now,
        "stored": stored_texts(stored),
        "dollars_per_hour": {"main": 2.5},
    }


def asked(slo: str = "ttft:p95=900ms", rps: str = "1.5x", since: str = "24h", limit: str = "60s") -> Question:
    return Question.of(slo, rps, since, limit, None)


def test_a_question_is_read_from_its_options() -> None:
    made = asked("ttft:p95=300ms, tpot:p99=40ms", "2x", "3h", "90s")
    assert made.slo == (("ttft", "p95", "300ms"), ("tpot", "p99", "40ms"))
    assert (made.factor, made.since_s, made.limit_s) == (2.0, 10_800.0, 90.0)
    assert made.sentence == "ttft p95 300ms, tpot p99 40ms, 2 times the requests"
    assert asked(rps="").sentence == "ttft p95 900ms"


@cases(
    ("changes", "message"),
    [
        ({"slo": "", "rps": ""}, r"--slo: nothing is changed; write --slo ttft:p95=300ms, --rps 1\.5x, or both"),
        ({"slo": "ttft=300ms"}, "--slo: 'ttft=300ms' is no target; write METRIC:QUANTILE=TIME"),
        ({"slo": "itl:p95=300ms"}, "--slo: 'itl:p95=300ms' is no target"),
        ({"slo": "ttft:p99.5=1s"}, r"'ttft:p99\.5=1s' has no known quantile; quantiles are p50, p90, p95, p99"),
        ({"slo": "ttft:p95=0s"}, "--slo: 'ttft:p95=0s' allows no time; the limit must be above 0s"),
        ({"slo": "ttft:p95=soon"}, "--slo: 'soon' is not a duration"),
        ({"rps": "1.5"}, r"--rps: '1\.5' is no factor; write so many times the requests with an x, up to 1000x"),
        ({"rps": "1001x"}, "--rps: '1001x' is no factor; .*, up to 1000x, such as"),
        ({"rps": "0x"}, "--rps: '0x' is no factor"),
        ({"since": "yesterday"}, "--since: 'yesterday' is not a duration"),
        ({"since": "1m"}, "--since: 1m is below the least, 5m"),
        ({"since": "100d"}, "--since: 100d is above the most, 7d"),
        ({"limit": "1ms"}, "--time-limit: 1ms is below the least, 10s"),
        ({"limit": "soon"}, "--time-limit: 'soon' is not a duration"),
    ],
)
def test_a_wrong_option_is_named_with_the_fix(changes: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        asked(**changes)


def test_a_target_is_set_and_the_others_stay() -> None:
    made = what_if_of(asked("ttft:p95=900ms,ttft:p50=200ms"), TEAM, learned())
    before, after = made.promise(made.as_is), made.promise(made.would_be)
    assert {target.name: target.seconds for target in before} == {"ttft_p95": 1.5, "tpot_p95": 0.05}
    assert {target.name: target.seconds for target in after} == {"ttft_p50": 0.2, "ttft_p95": 0.9, "tpot_p95": 0.05}
    assert (made.as_is.factor, made.would_be.factor, made.request_class) == (1.0, 1.5, RequestClass.INTERACTIVE)


@cases(
    ("question", "message"),
    [
        (asked("", "1x"), "--rps: nothing is changed, the service is so already; write a factor other than 1x"),
        (asked("ttft:p95=1500ms", ""), "--slo: nothing is changed, the service is so already; write another limit"),
    ],
)
def test_a_question_that_changes_nothing_is_refused(question: Question, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        what_if_of(question, TEAM, learned())


def test_a_limit_that_a_manifest_may_not_have_is_refused_by_its_field() -> None:
    with pytest.raises(PacelineError, match=r"spec\.classes\.interactive\.slo\.ttft\.p95"):
        what_if_of(asked("ttft:p95=1d"), TEAM, learned())


@pytest.mark.parametrize("answer", [{"now": 1.0}, {"now": 1.0, "stored": {"knowledge": "nonsense"}}])
def test_an_autoscaler_of_another_release_is_named(answer: dict[str, Any]) -> None:
    with pytest.raises(PacelineError, match="the autoscaler is of another release"):
        what_if_of(asked(), TEAM, answer)


NO_TIME = "no time was left for it; raise --time-limit"


def outcome(replicas: float, ttft: float) -> WhatIfOutcome:
    return WhatIfOutcome(3600.0, 9000.0, {"ttft_p95": ttft, "tpot_p95": 1.0}, replicas, 5, replicas * 3600.0)


def shown(exact: bool = True, price: float | None = 2.5, slo: str = "ttft:p95=900ms") -> str:
    question = asked(slo)
    made = what_if_of(question, TEAM, learned(90.0))
    compared = Compared(900.0, 4500.0, 12.4, outcome(2.0, 0.999), outcome(3.25, 0.9))
    part = Compared(1200.0, 2400.0, 30.0, outcome(2.1, 0.98), outcome(3.0, 0.97)) if exact else NO_TIME
    console = Console(width=120)
    with console.capture() as text:
        console.print(render(question, made, WhatIfAnswer(compared, part), price))
    return text.get()


def test_as_is_stands_beside_would_be_with_the_difference() -> None:
    text = shown()
    words = [" ".join(line.split()) for line in text.splitlines()]
    assert words[0] == "team/chat: ttft p95 900ms, 1.5 times the requests"
    assert "95% TTFT ≤ 900ms (is 1.5s) 99.90% holds 90.00% misses -9.90 points" in words
    assert "95% TPOT ≤ 50ms 100.00% holds 100.00% holds 0 points" in words
    assert "replicas, mean 2.00 3.25 +1.25" in words
    assert "replicas, most 5 5 0" in words
    assert "dollars an hour 5.00 8.12 +3.12" in words
    assert "replicas, mean 2.10 3.00 +0.90" in words
    assert "fluid: 1 h of sums by second, without single requests; it took 12 s" in text
    assert "exact: 20 min of the hour in which most waits, each request simulated; it took 30 s" in text
    assert "1 h 30 min of the last 24 h are known; gaps are filled by straight lines" in text
    assert "for attainment in 06:50:00 to 07:10:00 UTC believe the exact simulator" in text
    assert "judges no E2E" not in text
    assert "the fluid model judges no E2E" in shown(slo="e2e:p95=3s")


def test_what_was_not_simulated_or_is_not_known_is_said() -> None:
    text = shown(exact=False, price=None)
    assert "exact: no time was left for it; raise --time-limit" in text
    assert "dollars" not in text


def test_the_document_has_the_same() -> None:
    question = asked()
    made = what_if_of(question, TEAM, learned(90.0))
    compared = Compared(900.0, 4500.0, 12.4, outcome(2.0, 0.999), outcome(3.0, 0.9))
    found = document(question, made, WhatIfAnswer(compared, NO_TIME), 2.5)
    assert json.loads(json.dumps(found)) == found
    assert (found["exact"], found["exact_missing"]) == (None, NO_TIME)
    assert found["fluid"]["difference"] == {"replicas": 1.0, "peak": 0, "gpu_hours": 1.0, "dollars_per_hour": 2.5}
    assert (found["fluid"]["as_is"]["holds"], found["fluid"]["would_be"]["holds"]) == (True, False)
    (ttft, _) = found["fluid"]["would_be"]["targets"]
    assert ttft == {"name": "ttft_p95", "seconds": 0.9, "objective": 0.95, "attainment": 0.9}


@pytest.mark.real
def test_without_the_packages_of_a_simulation_the_other_commands_work_and_this_one_names_the_fix() -> None:
    code = "import sys; sys.modules['numpy'] = None; from paceline_cli.main import plugin; plugin(sys.argv[1:])"

    def called(*arguments: str) -> subprocess.CompletedProcess[str]:
        argv = (sys.executable, "-c", code, *arguments)
        return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)

    shown = called("--help")
    assert (shown.returncode, "what-if" in shown.stdout) == (0, True), shown.stderr
    refused = called("what-if", "chat", "--rps", "2x")
    assert refused.returncode == 2
    assert "what-if: simulates here, and needs the package numpy" in refused.stderr
    assert "pip install '.[local,kubernetes]'" in refused.stderr


@pytest.fixture
def what_if(
    cluster: ApiServer,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> Callable[..., tuple[int, str, str]]:
    kubeconfig = cluster.kubeconfig(tmp_path)
    cluster.service = TEAM

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            plugin(["what-if", "chat", "--kubeconfig", kubeconfig, *arguments])
        out, err = capsys.readouterr()
        return int(left.value.code or 0), out, err

    return run


@pytest.mark.real
def test_a_cluster_is_asked_and_the_simulation_runs_here(
    cluster: ApiServer,
    what_if: Callable[..., tuple[int, str, str]],
) -> None:
    cluster.answers = {"follower": {"error": "team/chat is not scaled here"}, "leader": learned(6.0)}
    code, out, err = what_if("--rps", "1.5x", "--time-limit", "20s", "-o", "json")
    assert code == 0, err
    found = json.loads(out)
    assert found["service"] == "team/chat"
    assert found["fluid"]["would_be"]["requests"] == pytest.approx(1.5 * found["fluid"]["as_is"]["requests"], rel=0.02)
    assert found["fluid"]["difference"]["replicas"] > 0
    assert found["known_s"] == 360.0


@cases(
    ("answers", "message"),
    [
        ({}, "no autoscaler runs in namespace paceline-system; choose another --system-namespace"),
        ({"one": None}, "no autoscaler has learned anything of team/chat: one: "),
        ({"one": {"error": "not here"}}, "one does not scale it"),
        ({"one": learned(3.0)}, "--since: 3.0 minutes of the service's work are known, and what-if needs 5"),
    ],
)
def test_what_is_not_known_ends_it_before_a_simulation(
    cluster: ApiServer,
    what_if: Callable[..., tuple[int, str, str]],
    answers: dict[str, Any],
    message: str,
) -> None:
    cluster.answers = answers
    code, out, err = what_if("--rps", "1.5x")
    assert (code > 0, out) == (True, "")
    assert message in err


def test_an_exact_part_with_too_few_requests_is_left_out_with_the_reason() -> None:
    asked_ = what_if_of(asked(), TEAM, learned())
    quiet = ExactRun(600.0, True, ((70.0, ()),), ())
    assert _compared_runs(asked_, 0.0, (quiet, quiet), 1.0) == "1 request came in its time, too few to judge by"
    short = ExactRun(90.0, True, (), ())
    assert _compared_runs(asked_, 0.0, (short, short), 1.0) == NO_TIME


def test_a_time_limit_that_is_too_short_is_named_with_what_it_was_for() -> None:
    made = what_if_of(asked(), TEAM, learned())
    span = FluidSpan(made.warm_up_s, made.warm_up_s, False, (), (), frozenset(), ())
    message = "--time-limit: in its part, 14s, the fluid model did not play the first 9 minutes that count; raise it"
    with pytest.raises(InvalidInput, match=message):
        _compared_spans(made, (span, span), 20.0, 14.0)
