from dataclasses import replace
from math import inf

import pytest

from paceline_core.objects.resolved import Target
from paceline_core.registry import Outcome, RequestClass, Verdict
from paceline_gateway.request.slo import evaluate_slos, in_time_s
from paceline_gateway.request.types import RequestRecord, RequestTerms, TokenUsage

CLS = RequestClass.INTERACTIVE
TTFT = Target(CLS, "ttft", 0.95, 0.5)
TPOT = Target(CLS, "tpot", 0.95, 0.05)
E2E = Target(CLS, "e2e", 0.99, 3.0)
GOOD = ("availability", Verdict.GOOD)


def record(*, stream: bool = True, ttft: float = 0.4, e2e: float = 1.0, tokens: int = 21) -> RequestRecord:
    return RequestRecord(
        outcome=Outcome.OK,
        status=200,
        code=None,
        tenant="team",
        terms=RequestTerms("default/chat", CLS, stream, 10, 30.0, 2),
        received=100.0,
        queued=100.0,
        sent=100.0,
        first=100.0 + ttft if stream else None,
        ended=100.0 + e2e,
        attempts=1,
        worker="w0",
        meter=TokenUsage(output=tokens),
    )


def test_a_stream_within_its_limits_is_good_everywhere() -> None:
    verdicts = evaluate_slos(record(), [TTFT, TPOT, E2E])
    assert verdicts == [
        ("ttft_p95", Verdict.GOOD), ("tpot_p95", Verdict.GOOD), ("e2e_p99", Verdict.GOOD), GOOD,
    ]  # fmt: skip


def test_each_miss_is_named_after_its_metric() -> None:
    late = evaluate_slos(record(ttft=0.6, e2e=4.0), [TTFT, TPOT, E2E])
    assert late == [
        ("ttft_p95", Verdict.BAD_TTFT), ("tpot_p95", Verdict.BAD_TPOT), ("e2e_p99", Verdict.BAD_E2E), GOOD,
    ]  # fmt: skip


def test_a_ttft_limit_grows_with_the_prompt_where_the_class_says_so() -> None:
    longer = Target(CLS, "ttft", 0.95, 0.5, per_prompt_token=0.001)
    late, tokens = record(ttft=0.6), TokenUsage(prompt=100, output=21)
    assert evaluate_slos(late, [longer])[0] == ("ttft_p95", Verdict.BAD_TTFT)  # the estimate is 10 tokens
    assert evaluate_slos(replace(late, meter=tokens), [longer])[0] == ("ttft_p95", Verdict.GOOD)
    whole = replace(record(stream=False, e2e=1.6), meter=tokens)
    assert evaluate_slos(whole, [TTFT, TPOT])[0] == ("e2e_p95", Verdict.BAD_E2E)
    assert evaluate_slos(whole, [longer, TPOT])[0] == ("e2e_p95", Verdict.GOOD)


@pytest.mark.parametrize("outcome", [Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.STREAM_ERROR, Outcome.TIMEOUT])
def test_what_was_shed_failed_or_cut_misses_every_target(outcome: Outcome) -> None:
    verdicts = evaluate_slos(replace(record(), outcome=outcome), [TTFT, TPOT])
    assert {verdict for _, verdict in verdicts} == {Verdict.BAD_FAILED}
    assert [slo for slo, _ in verdicts] == ["ttft_p95", "tpot_p95", "availability"]


@pytest.mark.parametrize("outcome", [Outcome.CLIENT_ERROR, Outcome.QUOTA, Outcome.CANCELLED])
def test_what_the_client_did_is_not_counted(outcome: Outcome) -> None:
    assert evaluate_slos(replace(record(), outcome=outcome), [TTFT, TPOT]) == []


def test_a_stream_of_one_token_keeps_any_tpot() -> None:
    assert ("tpot_p95", Verdict.GOOD) in evaluate_slos(record(tokens=1, e2e=9.0), [TPOT])


def test_a_whole_answer_is_judged_on_its_e2e_alone() -> None:
    verdicts = evaluate_slos(record(stream=False, e2e=2.0), [TTFT, TPOT, E2E])
    assert verdicts == [("e2e_p99", Verdict.GOOD), GOOD]


def test_a_whole_answers_target_is_derived_when_none_is_set() -> None:
    # 0.5 s + 21 tokens x 0.05 s = 1.55 s
    assert evaluate_slos(record(stream=False, e2e=1.5), [TTFT, TPOT]) == [("e2e_p95", Verdict.GOOD), GOOD]
    assert evaluate_slos(record(stream=False, e2e=1.6), [TTFT, TPOT]) == [("e2e_p95", Verdict.BAD_E2E), GOOD]


def test_targets_of_other_classes_do_not_apply() -> None:
    assert evaluate_slos(record(), [Target(RequestClass.BATCH, "ttft", 0.5, 0.001)]) == [GOOD]


def test_a_request_that_named_no_known_model_is_not_judged() -> None:
    assert evaluate_slos(replace(record(), terms=None, outcome=Outcome.SHED), [TTFT]) == []


def test_a_stream_is_in_time_until_its_loosest_ttft() -> None:
    targets = [
        Target(RequestClass.INTERACTIVE, "ttft", 0.5, 0.5),
        Target(RequestClass.INTERACTIVE, "ttft", 0.99, 2.0, 0.001),
        Target(RequestClass.INTERACTIVE, "e2e", 0.99, 60.0),
    ]
    assert in_time_s(targets, 3000, 100, stream=True) == 5.0
    assert in_time_s(targets[2:], 3000, 100, stream=True) == inf
    assert in_time_s([], 3000, 100, stream=False) == inf


def test_a_whole_answer_is_in_time_while_its_tokens_can_come_as_promised() -> None:
    """100 tokens of 0.05 s before its end; derived from TTFT and TPOT, that leaves the TTFT."""
    tpot = Target(RequestClass.INTERACTIVE, "tpot", 0.99, 0.05)
    promised = [tpot, Target(RequestClass.INTERACTIVE, "e2e", 0.99, 9.0)]
    assert in_time_s(promised, 3000, 100, stream=False) == pytest.approx(4.0)
    derived = [tpot, Target(RequestClass.INTERACTIVE, "ttft", 0.99, 2.0)]
    assert in_time_s(derived, 3000, 100, stream=False) == pytest.approx(2.0)
