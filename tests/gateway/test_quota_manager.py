"""Limits of a tenant: what fits, how long to wait, and nothing lost between reserving and settling."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.quota_bench import ONE, asked, granted, limited, refused

from paceline_core.errors import Code, RequestError, error_response
from paceline_gateway.quota.bucket_store import BucketStore
from paceline_gateway.quota.manager import FORGET_S, QuotaManager
from paceline_gateway.quota.types import SIZE, QuotaUsage, Reservation


def test_without_limits_everything_fits_and_no_header_is_sent() -> None:
    quotas, who = QuotaManager(), limited()
    for _ in range(1000):
        assert granted(quotas, who, QuotaUsage(1, 10**6, 10**6), 0.0).fields == b""


@pytest.mark.parametrize(
    ("name", "limit", "use"),
    [
        ("requestsPerMinute", 60, QuotaUsage(1, 0, 0)),
        ("inputTokensPerMinute", 6000, QuotaUsage(1, 100, 0)),
        ("outputTokensPerMinute", 6000, QuotaUsage(1, 0, 100)),
    ],
)
def test_a_limit_holds_and_sends_retry_after(name: str, limit: int, use: QuotaUsage) -> None:
    quotas, who = QuotaManager(), limited("team", "open", **{name: limit})
    for _ in range(60):
        granted(quotas, who, use, 0.0)
    error = refused(quotas, who, use, 0.0)
    assert error.code is Code.RATE_LIMIT_EXCEEDED
    assert error.retry_after == pytest.approx(1.0)
    refused(quotas, who, use, 0.9)
    granted(quotas, who, use, 1.0)


def test_a_refusal_says_what_is_left_where_the_request_is_larger() -> None:
    quotas, who = QuotaManager(), limited(outputTokensPerMinute=300)
    granted(quotas, who, QuotaUsage(1, 0, 90), 0.0)
    error = refused(quotas, who, QuotaUsage(1, 0, 250), 0.0)
    told = "Of your limit of 300 output tokens per minute 210 are left, and this request may use 250; retry in 8.0 s."
    assert error.message == told
    granted(quotas, who, QuotaUsage(1, 0, 210), 0.0)
    used_up = refused(quotas, who, QuotaUsage(1, 0, 250), 0.0)
    assert used_up.message == "You have used your limit of 300 output tokens per minute; retry in 50.0 s."


def test_a_refusal_never_says_to_retry_in_no_time() -> None:
    quotas, who = QuotaManager(), limited(requestsPerMinute=60)
    granted(quotas, who, QuotaUsage(60, 0, 0), 0.0)
    error = refused(quotas, who, ONE, 0.98)
    assert error.message.endswith("retry in 0.1 s.")


def test_requests_at_once_are_limited() -> None:
    quotas, who = QuotaManager(), limited(concurrency=2)
    first = granted(quotas, who, ONE, 0.0)
    granted(quotas, who, ONE, 0.0)
    assert refused(quotas, who, ONE, 0.0).code is Code.RATE_LIMIT_EXCEEDED
    quotas.settle(first, ONE, 1.0)
    granted(quotas, who, ONE, 1.0)
    refused(quotas, who, ONE, 1.0)


def test_the_wait_for_a_slot_is_learned_from_how_long_requests_take() -> None:
    quotas, who = QuotaManager(), limited(concurrency=2)
    for number in range(50):
        quotas.settle(granted(quotas, who, ONE, number * 8.0), ONE, number * 8.0 + 8.0)
    granted(quotas, who, ONE, 400.0)
    granted(quotas, who, ONE, 400.0)
    assert refused(quotas, who, ONE, 400.0).retry_after == pytest.approx(4.0, rel=0.1)


def test_five_at_once_cannot_pass_a_limit_of_100_tokens_together() -> None:
    """litellm#18730: 663 tokens came through a limit of 100."""
    quotas, who = QuotaManager(), limited(outputTokensPerMinute=100)
    results = [asked(quotas, who, QuotaUsage(1, 10, 40), 0.0) for _ in range(5)]
    assert [isinstance(result, Reservation) for result in results] == [True, True, False, False, False]


def test_what_was_not_used_is_given_back_and_what_was_overdrawn_is_owed() -> None:
    quotas, who = QuotaManager(), limited(outputTokensPerMinute=60)
    quotas.settle(granted(quotas, who, QuotaUsage(1, 0, 60), 0.0), QuotaUsage(1, 0, 10), 0.0)
    last = granted(quotas, who, QuotaUsage(1, 0, 50), 0.0)
    quotas.settle(last, QuotaUsage(1, 0, 80), 0.0)
    assert refused(quotas, who, QuotaUsage(1, 0, 10), 0.0).retry_after == pytest.approx(40.0)


def test_what_comes_back_late_does_not_lie_on_top_of_a_full_limit() -> None:
    quotas, who = QuotaManager(), limited(outputTokensPerMinute=60)
    quotas.settle(granted(quotas, who, QuotaUsage(1, 0, 60), 0.0), QuotaUsage(), 60.0)
    granted(quotas, who, QuotaUsage(1, 0, 60), 60.0)
    assert refused(quotas, who, QuotaUsage(1, 0, 60), 60.0).retry_after == pytest.approx(60.0)


def test_a_request_larger_than_the_limit_goes_when_nothing_else_does() -> None:
    quotas, who = QuotaManager(), limited(inputTokensPerMinute=60)
    quotas.settle(granted(quotas, who, QuotaUsage(1, 600, 0), 0.0), QuotaUsage(1, 600, 0), 0.0)
    assert refused(quotas, who, QuotaUsage(1, 1, 0), 0.0).retry_after == pytest.approx(541.0)


def test_a_wait_that_no_client_keeps_is_not_worth_a_retry() -> None:
    quotas, who = QuotaManager(), limited(inputTokensPerMinute=60)
    granted(quotas, who, QuotaUsage(1, 600, 0), 0.0)
    said = error_response(refused(quotas, who, QuotaUsage(1, 1, 0), 0.0))
    assert (said.headers["x-should-retry"], said.headers["retry-after"]) == ("false", "541")
    assert error_response(refused(quotas, who, QuotaUsage(1, 1, 0), 490.0)).headers["x-should-retry"] == "true"


def test_a_limit_of_zero_cannot_be_waited_for() -> None:
    error = refused(QuotaManager(), limited(requestsPerMinute=0), ONE, 0.0)
    assert (error.code, error.retry_after) == (Code.INSUFFICIENT_QUOTA, None)
    assert error_response(error).headers["x-should-retry"] == "false"


def test_changed_limits_hold_at_once_and_open_requests_still_count() -> None:
    quotas = QuotaManager()
    first = granted(quotas, limited(concurrency=1), ONE, 0.0)
    narrow = limited(concurrency=1, requestsPerMinute=1)
    assert refused(quotas, narrow, ONE, 0.0).code is Code.RATE_LIMIT_EXCEEDED
    quotas.settle(first, ONE, 0.0)
    granted(quotas, narrow, ONE, 60.0)


def test_slots_that_came_back_do_not_outlive_a_narrower_limit() -> None:
    quotas, wide, narrow = QuotaManager(), limited(concurrency=5), limited(concurrency=2)
    still = [granted(quotas, wide, ONE, 0.0) for _ in range(5)]
    refused(quotas, narrow, ONE, 0.0)
    for reservation in still:
        quotas.settle(reservation, ONE, 1.0)
    granted(quotas, narrow, ONE, 1.0)
    granted(quotas, narrow, ONE, 1.0)
    refused(quotas, narrow, ONE, 1.0)


@pytest.mark.parametrize(("before", "after", "left"), [(100, 200, 120), (200, 100, 20), (100, 80, 0), (100, 100, 20)])
def test_changed_limits_forget_nothing_of_what_is_used(before: int, after: int, left: int) -> None:
    quotas = QuotaManager()
    granted(quotas, limited(outputTokensPerMinute=before), QuotaUsage(1, 1, 80), 0.0)
    who = limited(outputTokensPerMinute=after)
    if left:
        granted(quotas, who, QuotaUsage(1, 1, left), 0.0)
    refused(quotas, who, QuotaUsage(1, 1, 1), 0.0)


def test_counters_of_idle_tenants_only_are_forgotten() -> None:
    quotas, now = QuotaManager(), 0.0
    for number in range(100):
        quotas.settle(granted(quotas, limited(f"t{number}", requestsPerMinute=60), ONE, now), ONE, now)
    granted(quotas, limited("open", requestsPerMinute=60), ONE, now)
    granted(quotas, limited("over", requestsPerMinute=1), ONE, now)
    quotas.tick(now + FORGET_S)
    assert len(quotas) == 2
    assert refused(quotas, limited("over", requestsPerMinute=1), ONE, now + 15.0).retry_after == pytest.approx(45.0)


USES = st.builds(QuotaUsage, st.just(1), st.integers(1, 300), st.integers(1, 300), st.just(1))
STEPS = st.lists(st.tuples(USES, USES, st.booleans(), st.floats(0, 3)), max_size=40)


@given(STEPS)
def test_the_limits_hold_what_was_used_and_what_is_reserved(
    steps: list[tuple[QuotaUsage, QuotaUsage, bool, float]],
) -> None:
    """Where time stands still, what is left is exact: limit - used - reserved."""
    limit = 10**6
    quotas, who = QuotaManager(), limited(outputTokensPerMinute=limit)
    still: list[Reservation] = []
    spent = 0
    for need, real, settle_one, _ in steps:
        still.append(granted(quotas, who, need, 0.0))
        if settle_one:
            quotas.settle(still.pop(0), real, 0.0)
            spent += real.output_tokens
    free = limit - spent - sum(reservation.use.output_tokens for reservation in still)
    granted(quotas, who, QuotaUsage(1, 1, free), 0.0)
    refused(quotas, who, QuotaUsage(1, 1, 1), 0.0)


@given(STEPS)
def test_reserved_is_settled_and_refunded_and_open(steps: list[tuple[QuotaUsage, QuotaUsage, bool, float]]) -> None:
    quotas, now = QuotaManager(), 0.0
    who = limited(requestsPerMinute=30, inputTokensPerMinute=1000, outputTokensPerMinute=1000, concurrency=3)
    still: list[Reservation] = []
    for need, real, settle_one, pause in steps:
        now += pause
        result = asked(quotas, who, need, now)
        if isinstance(result, Reservation):
            still.append(result)
        if settle_one and still:
            quotas.settle(still.pop(), real, now)
        totals = quotas.totals
        for kind in range(SIZE):
            assert totals.open[kind] == sum(reservation.use[kind] for reservation in still)


@given(STEPS, USES)
def test_waiting_for_retry_after_is_just_enough(
    steps: list[tuple[QuotaUsage, QuotaUsage, bool, float]], last: QuotaUsage
) -> None:
    quotas, now = QuotaManager(), 0.0
    who = limited(requestsPerMinute=10, inputTokensPerMinute=700, outputTokensPerMinute=900)
    for need, real, settle_one, pause in steps:
        now += pause
        result = asked(quotas, who, need, now)
        if isinstance(result, Reservation) and settle_one:
            quotas.settle(result, real, now)
    result = asked(quotas, who, last, now)
    if isinstance(result, RequestError):
        assert result.retry_after is not None
        if result.retry_after > 0.02:
            refused(quotas, who, last, now + result.retry_after * 0.95)
        granted(quotas, who, last, now + result.retry_after + 1e-6)


@pytest.mark.parametrize("name", ["requestsPerMinute", "inputTokensPerMinute", "outputTokensPerMinute", "concurrency"])
def test_who_has_nothing_left_is_known_before_a_request_is_read(name: str) -> None:
    quotas, who, least = QuotaManager(), limited("team", "open", **{name: 1}), QuotaUsage(1, 1, 1)
    assert quotas.exhausted(who, least, 0.0) is None
    reservation = granted(quotas, who, least, 0.0)
    refusal = quotas.exhausted(who, least, 0.0)
    assert refusal is not None
    assert refusal.code is Code.RATE_LIMIT_EXCEEDED
    quotas.settle(reservation, least, 60.0)
    assert quotas.exhausted(who, least, 60.0) is None


def test_a_limit_of_zero_is_known_whether_shared_or_not() -> None:
    asked: list[object] = []
    for quotas in (QuotaManager(), QuotaManager(asked.append, "g0")):
        refusal = quotas.exhausted(limited(inputTokensPerMinute=0), QuotaUsage(1, 1), 0.0)
        assert refusal is not None
        assert refusal.code is Code.INSUFFICIENT_QUOTA
    assert not asked


def test_what_a_shared_pool_said_is_believed_for_a_moment() -> None:
    pool, who = BucketStore(), limited(requestsPerMinute=1)
    asks: list[Any] = []
    quotas, least = QuotaManager(asks.append, "g0"), QuotaUsage(1, 1)
    assert quotas.exhausted(who, least, 0.0) is None, "nothing was told yet"
    granted_or_not: list[object] = []
    for _ in range(2):
        quotas.reserve(who, least, 0.0, granted_or_not.append)
    while asks:
        ask = asks.pop()
        quotas.answered(ask, pool.exchange(ask, 0.0), 0.0)
    assert [isinstance(one, Reservation) for one in granted_or_not] == [True, False]
    assert quotas.exhausted(who, least, 0.5) is not None
    assert quotas.exhausted(who, least, 2.0) is None, "what is old is asked for anew"
