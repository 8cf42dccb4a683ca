"""Limits of a tenant: what fits, how long to wait, and nothing lost between reserving and settling."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.manifests import tenant
from tests.gateway.pieces import picture

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry import Outcome
from paceline_gateway.quota.bucket import NEVER, Bucket
from paceline_gateway.quota.quotas import Quotas, Reservation, Use, used
from paceline_gateway.requests.nouns import Meter, Record

ONE = Use(1, 100, 50)


def limited(**limits: int) -> ResolvedTenant:
    return picture(tenant("team", limits=limits)).tenants["team"]


def granted(quotas: Quotas, who: ResolvedTenant, use: Use, now: float) -> Reservation:
    result = quotas.reserve(who, use, now)
    assert isinstance(result, Reservation)
    return result


def refused(quotas: Quotas, who: ResolvedTenant, use: Use, now: float) -> RequestError:
    result = quotas.reserve(who, use, now)
    assert isinstance(result, RequestError)
    return result


def record(outcome: Outcome, *, sent: bool = True, prompt: int = 0, output: int = 0) -> Record:
    meter = Meter(prompt=prompt, output=output)
    return Record(outcome, 200, None, "team", None, 0.0, 0.0, 1.0 if sent else None, None, 2.0, 1, "w0", meter)


def test_without_limits_everything_fits() -> None:
    quotas, who = Quotas(), limited()
    for _ in range(1000):
        granted(quotas, who, Use(1, 10**6, 10**6), 0.0)


@pytest.mark.parametrize(
    ("limits", "use"),
    [
        ({"requestsPerMinute": 60}, Use(1, 0, 0)),
        ({"inputTokensPerMinute": 6000}, Use(0, 100, 0)),
        ({"outputTokensPerMinute": 6000}, Use(0, 0, 100)),
    ],
)
def test_a_limit_holds_and_tells_when_to_come_again(limits: dict[str, int], use: Use) -> None:
    quotas, who = Quotas(), limited(**limits)
    for _ in range(60):
        granted(quotas, who, use, 0.0)
    error = refused(quotas, who, use, 0.0)
    assert (error.code, error.retry_after) == (Code.RATE_LIMIT_EXCEEDED, 1.0)
    refused(quotas, who, use, 0.9)
    granted(quotas, who, use, 1.0)


def test_requests_at_once_are_limited() -> None:
    quotas, who = Quotas(), limited(concurrency=2)
    first = granted(quotas, who, ONE, 0.0)
    granted(quotas, who, ONE, 0.0)
    assert refused(quotas, who, ONE, 0.0).code is Code.RATE_LIMIT_EXCEEDED
    quotas.settle(first, ONE, 1.0)
    granted(quotas, who, ONE, 1.0)


def test_many_at_once_cannot_pass_a_limit_together() -> None:
    quotas, who = Quotas(), limited(outputTokensPerMinute=100)
    results = [quotas.reserve(who, Use(1, 10, 40), 0.0) for _ in range(5)]
    assert sum(isinstance(result, Reservation) for result in results) == 2


def test_what_was_not_used_is_given_back_and_what_was_overdrawn_is_owed() -> None:
    quotas, who = Quotas(), limited(outputTokensPerMinute=60)
    quotas.settle(granted(quotas, who, Use(1, 0, 60), 0.0), Use(1, 0, 10), 0.0)
    last = granted(quotas, who, Use(1, 0, 50), 0.0)
    quotas.settle(last, Use(1, 0, 80), 0.0)
    assert refused(quotas, who, Use(1, 0, 10), 0.0).retry_after == pytest.approx(40.0)


def test_a_request_larger_than_the_limit_goes_when_nothing_else_does() -> None:
    quotas, who = Quotas(), limited(inputTokensPerMinute=60)
    quotas.settle(granted(quotas, who, Use(1, 600, 0), 0.0), Use(1, 600, 0), 0.0)
    assert refused(quotas, who, Use(1, 1, 0), 0.0).retry_after == pytest.approx(541.0)


def test_a_limit_of_zero_cannot_be_waited_for() -> None:
    error = refused(Quotas(), limited(requestsPerMinute=0), ONE, 0.0)
    assert (error.code, error.retry_after) == (Code.INSUFFICIENT_QUOTA, None)
    assert Bucket(0, 0.0).wait(1, 10.0) == NEVER


def test_changed_limits_hold_at_once_and_open_requests_still_count() -> None:
    quotas = Quotas()
    first = granted(quotas, limited(concurrency=1), ONE, 0.0)
    narrow = limited(concurrency=1, requestsPerMinute=1)
    assert refused(quotas, narrow, ONE, 0.0).code is Code.RATE_LIMIT_EXCEEDED
    quotas.settle(first, ONE, 0.0)
    granted(quotas, narrow, ONE, 60.0)


@pytest.mark.parametrize("outcome", [Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT])
def test_what_was_not_served_costs_nothing(outcome: Outcome) -> None:
    assert used(record(outcome), ONE) == Use()


def test_what_never_left_the_queue_costs_nothing() -> None:
    assert used(record(Outcome.CANCELLED, sent=False), ONE) == Use()


def test_what_was_served_costs_what_it_used() -> None:
    assert used(record(Outcome.OK, prompt=7, output=9), ONE) == Use(1, 7, 9)
    assert used(record(Outcome.CANCELLED, output=3), ONE) == Use(1, 100, 3)
    assert used(record(Outcome.STREAM_ERROR, output=3), ONE) == Use(1, 100, 3)
    assert used(record(Outcome.CLIENT_ERROR), ONE) == Use(1, 0, 0)


USES = st.builds(Use, st.integers(0, 3), st.integers(0, 300), st.integers(0, 300))


@given(st.lists(st.tuples(USES, USES, st.booleans(), st.floats(0, 3)), max_size=40))
def test_the_buckets_hold_what_was_used_and_what_is_reserved(steps: list[tuple[Use, Use, bool, float]]) -> None:
    """With one bucket that never fills up again, its level is exact: limit - used - reserved."""
    limit = 10**6
    quotas, who = Quotas(), limited(outputTokensPerMinute=limit)
    still: list[Reservation] = []
    spent = 0
    for need, real, settle_one, _ in steps:
        still.append(granted(quotas, who, dataclasses.replace(need, requests=1), 0.0))
        if settle_one:
            quotas.settle(still.pop(0), real, 0.0)
            spent += real.output_tokens
    free = limit - spent - sum(reservation.use.output_tokens for reservation in still)
    assert isinstance(quotas.reserve(who, Use(1, 0, free), 0.0), Reservation)
    assert isinstance(quotas.reserve(who, Use(1, 0, 1), 0.0), RequestError)


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(-50, 200)), max_size=30), st.integers(1, 100))
def test_waiting_as_told_is_always_enough(steps: list[tuple[float, int]], amount: int) -> None:
    bucket, now = Bucket(100, 0.0), 0.0
    for pause, taken in steps:
        now += pause
        bucket.take(taken, now)
    assert bucket.wait(amount, now + bucket.wait(amount, now)) < 1e-6
