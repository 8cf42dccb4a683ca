"""What a request that has ended is charged for."""

from dataclasses import replace

import pytest
from tests.gateway.quota_bench import ONE

from paceline_core.registry import Outcome, RequestClass
from paceline_gateway.proxy.settlement import charged_usage, made_since
from paceline_gateway.quota.types import QuotaUsage
from paceline_gateway.request.types import RequestRecord, RequestTerms, TokenUsage


def record(outcome: Outcome, *, sent: bool = True, prompt: int = 0, output: int = 0) -> RequestRecord:
    meter = TokenUsage(prompt=prompt, output=output)
    return RequestRecord(outcome, 200, None, "team", None, 0.0, 0.0, 1.0 if sent else None, None, 2.0, 1, "w0", meter)


@pytest.mark.parametrize("outcome", [Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT])
def test_what_was_not_served_costs_nothing(outcome: Outcome) -> None:
    assert charged_usage(record(outcome), ONE) == QuotaUsage()


def test_what_never_left_the_queue_costs_nothing() -> None:
    assert charged_usage(record(Outcome.CANCELLED, sent=False), ONE) == QuotaUsage()


def test_what_was_served_costs_what_it_used() -> None:
    assert charged_usage(record(Outcome.OK, prompt=7, output=9), ONE) == QuotaUsage(1, 7, 9)
    assert charged_usage(record(Outcome.CANCELLED, output=3), ONE) == QuotaUsage(1, 100, 3)
    assert charged_usage(record(Outcome.STREAM_ERROR, output=3), ONE) == QuotaUsage(1, 100, 3)
    assert charged_usage(record(Outcome.CLIENT_ERROR), ONE) == QuotaUsage(1, 0, 0)


def test_a_refusal_that_counts_tokens_is_charged_them() -> None:
    assert charged_usage(record(Outcome.CLIENT_ERROR, prompt=7, output=9), ONE) == QuotaUsage(1, 7, 9)


def test_a_whole_answer_is_charged_an_estimate_where_nobody_has_counted_it() -> None:
    terms = RequestTerms("default/chat", RequestClass.INTERACTIVE, False, 100, 60.0, 1)
    need = QuotaUsage(1, 100, 30)
    assert charged_usage(replace(record(Outcome.CANCELLED), terms=terms), need, 12) == QuotaUsage(1, 100, 12)
    assert charged_usage(replace(record(Outcome.OK), terms=terms), need, 12) == need
    assert charged_usage(replace(record(Outcome.TIMEOUT), terms=terms), need, 12) == QuotaUsage()


def test_what_was_made_meanwhile_is_a_token_a_step_for_each_choice() -> None:
    assert made_since(2.05, 0.1, 3) == 60
    assert made_since(-1.0, 0.1, 3) == 0
    assert made_since(2.0, 0.0, 3) is None
