"""Targets, attainment and the report's verdict."""

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest

from paceline_cli.bench.observation import BenchObservation, Emulation, LatenessTally, host_use
from paceline_cli.bench.openloop import Arrival, Ending, RequestSample, TokenCounts
from paceline_cli.bench.profiles import Profile, burst, poisson
from paceline_cli.bench.report import Run, Window, attainment, met, parse_target, recovery, report, summarise
from paceline_core.errors import InvalidInput
from paceline_core.objects import Target
from paceline_core.registry import RequestClass

TTFT = Target(RequestClass.INTERACTIVE, "ttft", 0.95, 0.5)
TPOT = Target(RequestClass.INTERACTIVE, "tpot", 0.95, 0.05)
NOTHING = BenchObservation()
E2E = Target(RequestClass.INTERACTIVE, "e2e", 0.5, 60.0)
PROFILE = burst(1, 4, (10, 20, 10), 4096, 32)


def answered(number: int, at: float, ttft: float, phase: str = "load") -> RequestSample:
    content = (at + ttft, at + ttft + 0.01, at + ttft + 0.03)
    return RequestSample(Arrival(number, at, phase, 10, 3), Ending.OK, at, content[-1], content, TokenCounts(10, 3))


def lost(number: int, at: float, ending: Ending) -> RequestSample:
    return RequestSample(Arrival(number, at, "load", 10, 3), ending, at, at + 1, (at + 0.1,))


def judged(samples: Sequence[RequestSample], seen: BenchObservation = NOTHING, profile: Profile | None = None) -> str:
    run = Run("2026-01-01T00:00:00Z", "http://x", "m", profile or poisson(1, 10, 10, 3), 0, (TTFT,))
    return report(run, samples, seen).verdict


def test_the_measures_of_an_answer() -> None:
    sample = answered(0, 5.0, 0.2)
    assert sample.ttft == pytest.approx(0.2)
    assert sample.tpot == pytest.approx(0.015)
    assert sample.e2e == pytest.approx(0.23)
    assert sample.gaps == pytest.approx((0.01, 0.02))


def test_tpot_divides_by_the_servers_count_and_not_by_events() -> None:
    sample = replace(answered(0, 0.0, 0.2), usage=TokenCounts(10, 31))
    assert sample.tpot == pytest.approx(0.001)


def test_one_token_keeps_a_tpot_target_and_has_no_tpot() -> None:
    sample = replace(answered(0, 0.0, 0.2), content=(0.2,), usage=TokenCounts(10, 1))
    assert sample.tpot is None
    assert met(TPOT, sample)


def test_an_answer_without_text_misses_a_ttft_target() -> None:
    assert not met(TTFT, replace(answered(0, 0.0, 0.2), content=()))


@pytest.mark.parametrize("ending", [ending for ending in Ending if ending is not Ending.OK])
def test_whatever_is_not_ok_misses_every_target(ending: Ending) -> None:
    assert not any(met(target, lost(0, 0.0, ending)) for target in (TTFT, TPOT))


def test_attainment_is_over_offered_requests() -> None:
    samples = [answered(0, 0.0, 0.1), answered(1, 1.0, 0.9), lost(2, 2.0, Ending.REFUSED), lost(3, 3.0, Ending.CUT)]
    part = attainment(TTFT, samples)
    assert (part.good, part.offered, part.ratio, part.met) == (1, 4, 0.25, False)


def test_nothing_offered_is_neither_kept_nor_missed() -> None:
    part = attainment(TTFT, [])
    assert (part.ratio, part.met) == (None, None)


def test_a_summary_counts_endings_and_tokens() -> None:
    summary = summarise("all", 10.0, [answered(0, 0.0, 0.1), lost(1, 1.0, Ending.TIMEOUT)], (TTFT,))
    assert summary.endings == {"ok": 1, "timeout": 1}
    assert (summary.output_tokens, summary.output_tokens_per_s, summary.goodput_per_s) == (3, 0.3, 0.1)
    assert summary.goodput_ratio == 0.5
    assert summary.ttft.n == 1


@pytest.mark.parametrize(
    ("text", "target"),
    [
        ("ttft_p95=500ms", TTFT),
        ("tpot_p95=50ms", TPOT),
        ("e2e_p50=1m", E2E),
    ],
)
def test_a_target_is_written_like_a_metrics_label(text: str, target: Target) -> None:
    assert parse_target(text) == target
    assert text.startswith(target.name)


@pytest.mark.parametrize("text", ["", "ttft", "ttft_p95", "ttft_p95=", "ttft_p96=1s", "itl_p95=1s", "ttft_p95=fast"])
def test_an_unreadable_target_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="target"):
        parse_target(text)


def test_the_verdict_says_kept_or_missed() -> None:
    assert judged([answered(n, n / 2, 0.1) for n in range(20)]) == "kept"
    assert judged([answered(n, n / 2, 0.9) for n in range(20)]) == "missed"


@pytest.mark.parametrize(("p99", "verdict"), [(0.05, "kept"), (0.1, "void"), (math.inf, "void"), (None, "kept")])
def test_late_emulated_steps_void_a_run(p99: float | None, verdict: str) -> None:
    assert judged([answered(0, 0.0, 0.1)], BenchObservation(emulation=Emulation(100, p99))) == verdict


def test_a_generator_behind_its_own_schedule_voids_a_run() -> None:
    late = replace(answered(0, 5.0, 0.1), arrival=Arrival(0, 4.0, "load", 10, 3))
    assert late.lateness == pytest.approx(1.0)
    assert judged([late]) == "void"


def test_a_report_is_plain_versioned_json() -> None:
    run = Run("2026-01-01T00:00:00Z", "http://x", "m", PROFILE, 7, (TTFT, TPOT))
    samples = [answered(n, n * 1.0, 0.1, phase=("before", "burst", "burst", "after")[n // 10]) for n in range(40)]
    data = json.loads(json.dumps(asdict(report(run, samples, BenchObservation()))))
    assert data["schema"] == "paceline.bench/v1"
    assert data["definitions"]["percentile"].startswith("linear interpolation")
    assert [phase["name"] for phase in data["phases"]] == ["before", "burst", "after"]
    assert [phase["offered"] for phase in data["phases"]] == [10, 20, 10]
    assert sum(window["offered"] for window in data["timeline"]) == 40
    assert (data["cut_streams"], data["losses"]) == (0, [])


def test_losses_are_counted_by_how_and_why() -> None:
    run = Run("2026-01-01T00:00:00Z", "http://x", "m", poisson(1, 10, 10, 3), 0, ())
    samples = [answered(0, 0.0, 0.1), lost(1, 1.0, Ending.CUT), lost(2, 2.0, Ending.CUT), lost(3, 3.0, Ending.REFUSED)]
    result = report(run, samples, NOTHING)
    assert [(loss.ending, loss.count) for loss in result.losses] == [("cut", 2), ("refused", 1)]
    assert result.cut_streams == 2


def window(start: float, attained: bool | None) -> Window:
    return Window(start, start + 5, 10, {}, attained, None)


@pytest.mark.parametrize(
    ("burst_windows", "seconds"),
    [
        ((True, True, True, True), 0.0),
        ((False, True, True, True), 5.0),
        ((True, False, False, True), 15.0),
        ((False, True, False, True), 15.0),
        ((False, None, True, True), 5.0),
        ((True, True, True, False), None),
        ((False, False, False, False), None),
    ],
)
def test_recovery_is_the_last_broken_windows_end(burst_windows: tuple[bool | None, ...], seconds: float | None) -> None:
    before, after = (window(0, True), window(5, True)), (window(30, False), window(35, False))
    inside = [window(10 + 5 * n, attained) for n, attained in enumerate(burst_windows)]
    assert recovery(PROFILE, [*before, *inside, *after]) == seconds


def test_a_profile_without_a_burst_has_no_recovery() -> None:
    assert recovery(poisson(1, 10, 1, 1), [window(0, False)]) is None


def test_lateness_is_added_up_over_workers_and_cleared_of_the_past() -> None:
    tally = LatenessTally()
    tally.base["old"] = {0.05: 50.0, math.inf: 100.0}
    tally.last["old"] = {0.05: 150.0, math.inf: 200.0}
    tally.last["new"] = {0.05: 10.0, math.inf: 10.0}
    assert tally.emulation() == Emulation(110, 0.05)


def test_a_stack_that_emulates_nothing_has_no_lateness() -> None:
    assert LatenessTally().emulation() is None


def test_host_use_needs_a_sample() -> None:
    assert host_use(2, []) is None
    use = host_use(2, [0.5, 1.0])
    assert use is not None
    assert (use.mean, use.peak) == (0.75, 1.0)
