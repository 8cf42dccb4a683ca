"""Several gateways, one set of limits: nobody overshoots, nothing leaks, whatever is lost on the way."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.quota_bench import ONE, Member, limited

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.quota.bucket_store import TTL_S, BucketStore
from paceline_gateway.quota.leased_buckets import SLICE_S
from paceline_gateway.quota.manager import WAITERS, QuotaManager
from paceline_gateway.quota.types import (
    NOTHING,
    SIZE,
    LeaseRequest,
    PendingReservation,
    QuotaUsage,
    Reservation,
    limits_of,
)


def members(count: int) -> list[Member]:
    return [Member(f"g{number}", count) for number in range(count)]


def admitted(group: Sequence[Member], kind: int = 2) -> float:
    return sum(reservation.use[kind] for member in group for reservation in member.held)


def one(
    member: Member, pool: BucketStore, who: ResolvedTenant, use: QuotaUsage, now: float
) -> Reservation | RequestError:
    """Ask at one gateway, and wait for the answer."""
    member.reserve(who, use, now)
    member.deliver(pool, now)
    return member.answers[-1]


def test_five_at_once_at_three_gateways_cannot_pass_a_limit_of_100_tokens_together() -> None:
    pool, group, who = BucketStore(), members(3), limited(outputTokensPerMinute=100)
    for number in range(5):
        group[number % 3].reserve(who, QuotaUsage(1, 10, 40), 0.0)
    for member in group:
        member.deliver(pool, 0.0)
    assert admitted(group) == 80
    assert sum(len(member.answers) for member in group) == 5


def test_a_slice_is_spent_without_asking_and_renewed_before_it_is_used_up() -> None:
    pool, member, who, now = BucketStore(), Member("g0"), limited(requestsPerMinute=600_000), 0.0
    at_once = 0
    for number in range(2000):
        now = number * 0.001
        at_once += member.reserve(who, ONE, now) is None
        member.deliver(pool, now)
    assert len(member.held) == 2000
    assert at_once > 1900


def test_small_limits_are_not_stranded_in_slices() -> None:
    pool, group, who = BucketStore(), members(3), limited(requestsPerMinute=10, outputTokensPerMinute=1000)
    for number in range(10):
        assert isinstance(one(group[number % 3], pool, who, ONE, 0.0), Reservation)
    assert isinstance(one(group[0], pool, who, ONE, 0.0), RequestError)


def test_what_lies_idle_at_one_gateway_serves_another() -> None:
    pool, (left, right), who, now = BucketStore(), members(2), limited(outputTokensPerMinute=60_000), 0.0
    for number in range(200):
        now = number * 0.005
        one(left, pool, who, QuotaUsage(1, 1, 50), now)
    assert pool.exchange(probe("o", who), now).levels[2] < 60_000 - 200 * 50 + now * 1000
    now += SLICE_S
    left.quotas.tick(now)
    left.deliver(pool, now)
    assert isinstance(one(right, pool, who, QuotaUsage(1, 1, round(50_000 + now * 1000 - 1)), now), Reservation)


def probe(holder: str, who: ResolvedTenant) -> LeaseRequest:
    """An ask for nothing."""
    return LeaseRequest(who.name, holder, 10**9, limits_of(who), NOTHING, NOTHING, NOTHING, NOTHING)


def test_slots_of_a_gateway_that_crashed_are_free_again_after_a_while_and_not_before() -> None:
    pool, (crashed, other), who = BucketStore(), members(2), limited(concurrency=4)
    for _ in range(4):
        one(crashed, pool, who, ONE, 0.0)
    assert isinstance(one(other, pool, who, ONE, TTL_S - 0.1), RequestError)
    assert isinstance(one(other, pool, who, ONE, TTL_S), Reservation)


def test_slots_of_a_gateway_that_lives_stay_taken_however_long_the_requests_last() -> None:
    pool, (busy, other), who = BucketStore(), members(2), limited(concurrency=4)
    for _ in range(4):
        one(busy, pool, who, ONE, 0.0)
    for second in range(1, 100):
        busy.quotas.tick(float(second))
        busy.deliver(pool, float(second))
    assert isinstance(one(other, pool, who, ONE, 100.0), RequestError)
    busy.quotas.settle(busy.held[0], ONE, 100.0)
    busy.deliver(pool, 100.0)
    assert isinstance(one(other, pool, who, ONE, 100.0), Reservation)


def test_a_gateway_that_stops_gives_everything_back() -> None:
    pool, left, who = BucketStore(), Member("g0"), limited(requestsPerMinute=6000)
    for number in range(100):
        one(left, pool, who, ONE, number * 0.001)
    left.quotas.leave(0.1)
    left.deliver(pool, 0.1)
    assert pool.exchange(probe("o", who), 0.1).levels[0] == pytest.approx(5910.0, abs=1e-6)


@pytest.mark.parametrize("need", [40, 100, 130])
def test_retry_after_is_exact_with_others_reservations_open(need: int) -> None:
    pool, (left, right), who = BucketStore(), members(2), limited(outputTokensPerMinute=100)
    one(left, pool, who, QuotaUsage(1, 1, 70), 0.0)
    error = one(right, pool, who, QuotaUsage(1, 1, need), 3.0)
    assert isinstance(error, RequestError)
    assert error.retry_after is not None
    assert isinstance(one(right, pool, who, QuotaUsage(1, 1, need), 3.0 + error.retry_after * 0.9), RequestError)
    assert isinstance(one(right, pool, who, QuotaUsage(1, 1, need), 3.0 + error.retry_after), Reservation)


def test_who_waits_behind_a_request_that_is_too_large_is_not_refused_with_it() -> None:
    pool, member, who = BucketStore(), Member("g0"), limited(outputTokensPerMinute=100)
    one(member, pool, who, QuotaUsage(1, 1, 30), 0.0)
    for tokens in (90, 60, 20):
        member.reserve(who, QuotaUsage(1, 1, tokens), 0.0)
    member.deliver(pool, 0.0)
    assert [type(answer) for answer in member.answers[1:]] == [RequestError, Reservation, RequestError]


def test_who_left_while_it_waited_has_nothing_set_aside() -> None:
    pool, member, who = BucketStore(), Member("g0"), limited(outputTokensPerMinute=100)
    waiter = member.reserve(who, QuotaUsage(1, 1, 100), 0.0)
    assert waiter is not None
    waiter.gone = True
    member.deliver(pool, 0.0)
    assert member.answers == []
    assert member.quotas.totals.reserved == [0.0] * SIZE
    assert isinstance(one(member, pool, who, QuotaUsage(1, 1, 100), 0.0), Reservation)


def test_only_so_many_wait_for_the_store() -> None:
    member, who = Member("g0"), limited(outputTokensPerMinute=100)
    for _ in range(WAITERS + 1):
        member.reserve(who, ONE, 0.0)
    (answer,) = member.answers
    assert isinstance(answer, RequestError)
    assert answer.code is Code.RATE_LIMIT_EXCEEDED
    assert member.quotas.waiting == WAITERS


def test_changed_limits_reach_the_shared_counters_and_forget_nothing() -> None:
    pool, (left, right) = BucketStore(), members(2)
    one(left, pool, limited(outputTokensPerMinute=100), QuotaUsage(1, 1, 80), 0.0)
    wide = limited(outputTokensPerMinute=200)
    assert isinstance(one(right, pool, wide, QuotaUsage(1, 1, 121), 0.0), RequestError)
    assert isinstance(one(right, pool, wide, QuotaUsage(1, 1, 120), 0.0), Reservation)


def test_while_the_store_is_away_an_open_tenant_has_this_gateways_share() -> None:
    member, who = Member("g0", gateways=4), limited(requestsPerMinute=40)
    waiter = member.reserve(who, ONE, 0.0)
    assert waiter is not None
    member.quotas.lost(0.0)
    for _ in range(9):
        assert member.reserve(who, ONE, 0.0) is None
    assert len(member.held) == 10
    assert member.quotas.lent == 10
    assert b"x-paceline-quota: own-share" in member.held[-1].fields
    member.reserve(who, ONE, 0.0)
    error = member.answers[-1]
    assert isinstance(error, RequestError)
    assert error.code is Code.RATE_LIMIT_EXCEEDED
    assert error.retry_after == pytest.approx(6.0)


def test_while_the_store_is_away_a_closed_tenant_is_refused_with_the_reason() -> None:
    member, who = Member("g0"), limited(on_store_failure="closed", requestsPerMinute=40)
    member.reserve(who, ONE, 0.0)
    member.quotas.lost(0.0)
    member.reserve(who, ONE, 0.0)
    for answer in member.answers:
        assert isinstance(answer, RequestError)
        assert answer.code is Code.QUOTA_UNAVAILABLE
    assert len(member.answers) == 2


def test_a_tenant_without_limits_needs_no_store() -> None:
    member = Member("g0")
    member.quotas.lost(0.0)
    assert member.reserve(limited(on_store_failure="closed"), ONE, 0.0) is None
    assert len(member.held) == 1


def test_what_was_spent_without_the_store_is_paid_when_it_is_back() -> None:
    pool, group, who = BucketStore(), members(2), limited(outputTokensPerMinute=100)
    for member in group:
        one(member, pool, who, QuotaUsage(1, 1, 10), 0.0)
        member.quotas.lost(0.0)
        for _ in range(10):
            member.reserve(who, QuotaUsage(1, 1, 10), 0.0)
    assert admitted(group) == 100
    for member in group:
        member.quotas.found(2, 0.0)
        member.deliver(pool, 0.0)
    assert isinstance(one(group[0], pool, who, QuotaUsage(1, 1, 1), 0.0), RequestError)
    assert isinstance(one(group[0], pool, who, QuotaUsage(1, 1, 10), 6.001), Reservation)


@pytest.mark.parametrize("applied", [True, False])
def test_an_answer_that_was_lost_counts_once(applied: bool) -> None:
    pool, member, who = BucketStore(), Member("g0"), limited(outputTokensPerMinute=100)
    member.reserve(who, QuotaUsage(1, 1, 30), 0.0)
    if applied:
        pool.exchange(member.sent[0], 0.0)
    member.sent.clear()
    member.quotas.lost(0.0)
    assert len(member.held) == 1
    member.quotas.found(1, 0.0)
    member.deliver(pool, 0.0)
    member.quotas.settle(member.held[0], QuotaUsage(1, 1, 30), 0.0)
    member.quotas.leave(0.0)
    member.deliver(pool, 0.0)
    assert pool.exchange(probe("o", who), 0.0).levels[2] == pytest.approx(70.0)


def test_a_late_copy_of_an_old_ask_changes_nothing() -> None:
    pool, member, who = BucketStore(), Member("g0"), limited(outputTokensPerMinute=100)
    member.reserve(who, QuotaUsage(1, 1, 30), 0.0)
    (late,) = member.sent
    member.deliver(pool, 0.0)
    one(member, pool, who, QuotaUsage(1, 1, 30), 0.0)
    assert sum(pool.exchange(late, 0.0).given) == 0
    assert pool.exchange(probe("o", who), 0.0).levels[2] == pytest.approx(40.0)


def test_a_store_that_lost_its_state_is_restored_from_the_gateways_beliefs() -> None:
    group, who = members(3), limited(outputTokensPerMinute=100)
    before = BucketStore(epoch=1)
    for member in group:
        assert isinstance(one(member, before, who, QuotaUsage(1, 1, 30), 0.0), Reservation)
    empty = BucketStore(epoch=2)
    for member in reversed(group):
        assert isinstance(one(member, empty, who, QuotaUsage(1, 1, 11), 0.0), RequestError)
    assert isinstance(one(group[0], empty, who, QuotaUsage(1, 1, 10), 0.0), Reservation)


USES = st.builds(QuotaUsage, st.just(1), st.integers(1, 60), st.integers(1, 60), st.just(1))
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.sampled_from(
            ["ask", "ask", "ask", "settle", "abandon", "deliver", "deliver", "lose", "find", "tick", "apply"]
        ),
        USES,
        st.floats(0, 2),
    ),
    max_size=80,
)


@given(STEPS, st.booleans())
def test_whatever_happens_to_the_store_reserved_is_settled_and_refunded_and_open(
    steps: list[tuple[int, str, QuotaUsage, float]], closed: bool
) -> None:
    pool, group, now = BucketStore(), members(3), 0.0
    who = limited(
        on_store_failure="closed" if closed else "open",
        requestsPerMinute=60, inputTokensPerMinute=400, outputTokensPerMinute=400, concurrency=5,
    )  # fmt: skip
    still: list[list[Reservation]] = [[], [], []]
    waiting: list[list[PendingReservation]] = [[], [], []]
    for number, what, use, pause in steps:
        member, now = group[number], now + pause
        _step(member, what, use, pool, who, now, still[number], waiting[number])
        _balanced(member, still[number])
    for number, member in enumerate(group):
        member.quotas.found(3, now)
        member.deliver(pool, now)
        _collect(member, still[number])
        for reservation in still[number]:
            member.quotas.settle(reservation, QuotaUsage(), now)
        _balanced(member, [])
        assert member.quotas.waiting == 0
        assert member.quotas.totals.open == [0.0] * SIZE


def _step(
    member: Member,
    what: str,
    use: QuotaUsage,
    pool: BucketStore,
    who: ResolvedTenant,
    now: float,
    still: list[Reservation],
    waiting: list[PendingReservation],
) -> None:
    match what:
        case "ask":
            waiter = member.reserve(who, use, now)
            if waiter is not None:
                waiting.append(waiter)
        case "settle" if still:
            member.quotas.settle(still.pop(0), use, now)
        case "abandon" if waiting:
            waiting.pop().gone = True
        case "deliver" if not member.quotas.away:
            member.deliver(pool, now)
        case "apply" if member.sent:
            pool.exchange(member.sent[0], now)
        case "lose":
            member.sent.clear()
            member.quotas.lost(now)
        case "find":
            member.quotas.found(3, now)
        case "tick":
            member.quotas.tick(now)
    _collect(member, still)


def _collect(member: Member, still: list[Reservation]) -> None:
    still.extend(member.held)
    member.answers.clear()


def _balanced(member: Member, still: list[Reservation]) -> None:
    totals = member.quotas.totals
    for kind in range(SIZE):
        assert totals.open[kind] == sum(reservation.use[kind] for reservation in still)


@given(
    st.lists(st.tuples(st.integers(0, 2), USES, st.floats(0, 1.5), st.booleans()), max_size=120),
    st.sampled_from([300, 3000, 6000]),
)
def test_gateways_together_admit_no_more_than_the_limit_and_its_refill(
    steps: list[tuple[int, QuotaUsage, float, bool]], limit: int
) -> None:
    """Every window, every kind: what is admitted in it is at most the limit and what refilled since it began."""
    pool, group, now = BucketStore(), members(3), 0.0
    who = limited(requestsPerMinute=60, outputTokensPerMinute=limit)
    taken: list[tuple[float, QuotaUsage]] = []
    for number, use, pause, tick in steps:
        now += pause
        result = one(group[number], pool, who, use, now)
        if isinstance(result, Reservation):
            taken.append((now, use))
            group[number].quotas.settle(result, use, now)
        if tick:
            for member in group:
                member.quotas.tick(now)
                member.deliver(pool, now)
    for start in range(len(taken)):
        requests = output = 0
        for at, use in taken[start:]:
            requests, output = requests + 1, output + use.output_tokens
            assert requests <= 60 + (at - taken[start][0]) * 1.0 + 1e-3
            assert output <= limit + (at - taken[start][0]) * limit / 60 + 1e-3


def test_ten_thousand_random_ends_leak_nothing() -> None:
    draw, pool, group, now = Random(7), BucketStore(), members(3), 0.0
    who = limited(inputTokensPerMinute=10**7, outputTokensPerMinute=10**7, concurrency=500)
    still: list[tuple[Member, Reservation]] = []
    for _ in range(10_000):
        now += draw.random() * 0.01
        member = draw.choice(group)
        result = one(member, pool, who, QuotaUsage(1, draw.randint(1, 500), draw.randint(1, 500)), now)
        if isinstance(result, Reservation):
            still.append((member, result))
        while len(still) > 100:
            member, reservation = still.pop(draw.randrange(len(still)))
            part = draw.choice([0.0, draw.random(), 1.0])
            member.quotas.settle(reservation, QuotaUsage(1, 1, int(reservation.use.output_tokens * part)), now)
            member.deliver(pool, now)
    for member, reservation in still:
        member.quotas.settle(reservation, QuotaUsage(), now)
    for member in group:
        assert member.quotas.totals.open == [0.0] * SIZE
        member.quotas.leave(now)
        member.deliver(pool, now)
    assert pool.exchange(probe("o", who), now + 120.0).levels[1:] == (10**7, 10**7, 500)


def test_a_gateway_that_is_alone_is_the_same_as_one_of_one() -> None:
    alone, pool, member, who = (
        QuotaManager(),
        BucketStore(),
        Member("g0"),
        limited(outputTokensPerMinute=100, concurrency=3),
    )
    for number in range(40):
        now, use = number * 2.0, QuotaUsage(1, 1, 1 + number * 7 % 50)
        answers: list[Reservation | RequestError] = []
        alone.reserve(who, use, now, answers.append)
        shared = one(member, pool, who, use, now)
        assert type(shared) is type(answers[0])
        if isinstance(shared, Reservation) and isinstance(answers[0], Reservation):
            alone.settle(answers[0], use, now + 1)
            member.quotas.settle(shared, use, now + 1)
            member.deliver(pool, now + 1)
