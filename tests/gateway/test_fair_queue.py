"""The fair line: whose turn it is, what it is charged, and that nobody is favoured, starved or lost."""

import random
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from paceline_autoscaler.model.late_work import OVERDUE_SHARE
from paceline_core.registry import RequestClass
from paceline_gateway.queueing.dispatcher import WINDOW_S, WindowedMax
from paceline_gateway.queueing.fair_queue import FairQueue
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.queueing.tenant_queue import OVERTAKEN
from paceline_gateway.queueing.tenant_shares import TenantShares
from paceline_gateway.queueing.virtual_counters import IDLE, VirtualTokenCounters

NOW = 100.0
INTERACTIVE = RequestClass.INTERACTIVE


def queued(
    number: int, tenant: str = "a", tokens: int = 10, *, weight: int = 1, output: int = 0, in_time_s: float = inf
) -> QueuedRequest:
    made = QueuedRequest(number, INTERACTIVE, tokens, 40, deadline=NOW + 30, tenant=tenant, weight=weight)
    made.joined, made.in_time_s = NOW, in_time_s
    made.expected_output = output
    return made


def line(*requests: QueuedRequest) -> FairQueue:
    made = FairQueue()
    for each in requests:
        made.join(each)
    return made


def go(fair: FairQueue, uncached: int | None = None) -> QueuedRequest:
    """The next one goes, with nothing cached unless told."""
    gone = fair.next(None)
    assert gone is not None
    gone.cached_tokens = 0 if uncached is None else gone.prompt_tokens - uncached
    fair.went(gone)
    return gone


def order(fair: FairQueue) -> str:
    return "".join(go(fair).tenant for _ in range(len(fair)))


def test_tenants_take_turns_however_many_wait() -> None:
    assert order(line(*[queued(n, "a") for n in range(4)], queued(8, "b"), queued(9, "b"))) == "ababaa"


def test_a_tenant_of_twice_the_weight_is_served_twice_as_much() -> None:
    fair = line(*[t for n in range(30) for t in (queued(n, "a", weight=2), queued(100 + n, "b"))])
    served = [go(fair).tenant for _ in range(30)]
    assert served.count("a") == 20


def test_long_prompts_have_fewer_turns() -> None:
    fair = line(*[t for n in range(40) for t in (queued(n, "a", 100), queued(100 + n, "b", 10))])
    served = [go(fair).tenant for _ in range(33)]
    assert served.count("a") == 3


def test_expected_output_counts_twice() -> None:
    fair = line(*[t for n in range(40) for t in (queued(n, "a", 10, output=45), queued(100 + n, "b", 10))])
    assert [go(fair).tenant for _ in range(33)].count("a") == 3


def test_what_is_cached_is_not_charged() -> None:
    fair = line(queued(0, "a", 1000), queued(1, "a", 1000), queued(2, "b", 10), queued(3, "b", 10))
    served = [go(fair, uncached=1).tenant for _ in range(4)]
    assert served == ["a", "b", "a", "b"]


def test_an_answer_longer_than_expected_is_charged_when_it_ends() -> None:
    long = queued(0, "a")
    fair = line(long, *[queued(n, "a") for n in (1, 2)], *[queued(n, "b") for n in range(3, 9)])
    assert go(fair) is long
    fair.settle(long, 10 + 2 * 20)
    assert order(fair).startswith("bbbb")


def test_a_refund_gives_the_turn_back() -> None:
    failed = queued(0, "a", 300)
    fair = line(failed, *[queued(n, "a", 100) for n in (1, 2)], *[queued(n, "b", 100) for n in range(3, 7)])
    go(fair)
    fair.settle(failed, 0)
    assert order(fair)[:4] == "baba"


def test_who_was_idle_has_earned_no_more_than_one_request() -> None:
    fair = line(*[queued(n, "a", 100) for n in range(20)])
    for _ in range(10):
        go(fair)
    for number in range(50, 60):
        fair.join(queued(number, "b", 100))
    assert order(fair)[:6] in {"bababa", "babaab"}


def test_using_what_nobody_wanted_costs_nothing_later() -> None:
    fair = line()
    for number in range(100):
        fair.join(queued(number, "a", 1000))
        go(fair)
    fair.join(queued(200, "b", 1000))
    fair.join(queued(201, "a", 1000))
    fair.join(queued(202, "b", 1000))
    assert [go(fair).tenant for _ in range(2)] == ["b", "a"]


def test_who_takes_less_than_his_share_does_not_wait_when_two_of_his_requests_come_together() -> None:
    fair = line(*[queued(n, "a", 100) for n in range(20)], *[queued(20 + n, "b", 100) for n in range(20)])
    for _ in range(10):
        go(fair)
    fair.join(queued(50, "quiet", 40))
    fair.join(queued(51, "quiet", 40))
    fair.join(queued(52, "quiet", 40))
    fair.join(queued(53, "quiet", 40))
    assert [go(fair).id for _ in range(2)] == [50, 51]
    assert order(fair).index("quiet") < 2, "what is beyond the credit is shared as ever"


def test_coming_and_going_earns_nothing_more() -> None:
    fair = line(*[queued(n, "a", 100) for n in range(50)])
    served = 0
    for number in range(100, 130):
        fair.join(queued(number, "b", 100))
        if go(fair).tenant == "b":
            served += 1
        else:
            fair.leave(next(t for t in fair if t.tenant == "b"))
    assert served <= 15 + 1


def test_what_is_overdue_lets_those_in_time_go_first() -> None:
    fair = line(queued(0, in_time_s=1), queued(1, in_time_s=2), queued(2, in_time_s=9), queued(3))
    fair.expire(NOW + 2)
    assert [go(fair).id for _ in range(4)] == [2, 3, 0, 1]


def test_what_is_overdue_does_not_starve() -> None:
    """However many come later, every ninth to go is the first of those that are overdue."""
    fair = line(*[queued(n, in_time_s=1) for n in range(2)], *[queued(n) for n in range(10, 40)])
    fair.expire(NOW + 1)
    served = [go(fair).id for _ in range(32)]
    assert (served.index(0), served.index(1)) == (OVERTAKEN, 2 * OVERTAKEN + 1)


def test_the_autoscaler_plans_with_the_same_share_of_overdue_work() -> None:
    assert pytest.approx(1 / (OVERTAKEN + 1)) == OVERDUE_SHARE


def test_what_is_overdue_keeps_its_tenants_turn() -> None:
    """It lets its own tenant's requests go first, not those of others."""
    fair = line(queued(0, "a", in_time_s=1), queued(1, "b"), queued(2, "b"), queued(3, "a"))
    fair.expire(NOW + 1)
    assert [go(fair).id for _ in range(4)] == [3, 1, 0, 2]


def test_a_cached_prefix_does_not_bring_an_overdue_request_before_one_in_time() -> None:
    fair = line(queued(9, in_time_s=1), queued(0), queued(1))
    fair.expire(NOW + 1)
    gone = fair.next(lambda each: each.id)
    assert gone is not None
    assert gone.id == 1


def test_one_who_lost_its_worker_goes_before_all_and_a_begun_stream_before_that() -> None:
    lost, begun = queued(7, "c"), queued(8, "d")
    begun.resumed = True
    fair = line(queued(0), queued(1, "b"))
    fair.join(lost, front=True)
    fair.join(begun, front=True)
    assert [go(fair).id for _ in range(4)] == [8, 7, 0, 1]


def test_who_goes_again_is_not_charged_again() -> None:
    first = queued(0, "a", 50)
    fair = line(first)
    go(fair)
    fair.join(first, front=True)
    go(fair)
    assert fair.accounts.counter("a") == 50


def test_a_cached_prefix_is_preferred_but_overtakes_nobody_for_ever() -> None:
    fair = line(*[queued(n, "a") for n in range(3)])
    fair.next(None)
    served = []
    for number in range(100, 100 + 3 * OVERTAKEN):
        fair.join(queued(number, "a"))
        gone = fair.next(lambda t: t.id)
        assert gone is not None
        gone.cached_tokens = gone.prompt_tokens - 1
        fair.went(gone)
        served.append(gone.id)
    assert served[0] > 0
    assert served.index(0) == OVERTAKEN


def test_no_tenant_is_preferred_for_more_than_one_request_beyond_another() -> None:
    fair = line(*[t for n in range(20) for t in (queued(n, "a", 100), queued(100 + n, "b", 100))])
    for _ in range(20):
        gone = fair.next(lambda t: t.tenant == "b")
        assert gone is not None
        fair.went(gone)
        assert fair.accounts.spread <= 200


def test_nobody_past_its_deadline_is_given_out() -> None:
    late = queued(0)
    late.deadline = NOW
    fair = line(late, queued(1))
    fair.expire(NOW)
    assert fair.late == [late]
    assert len(fair) == 2
    assert go(fair).id == 1
    assert fair.next(None) is None
    assert fair.leave(late)
    assert (len(fair), fair.late, fair.nearest_deadline) == (0, [], None)


def test_the_nearest_deadline_is_right_after_others_have_left() -> None:
    sooner = queued(0)
    sooner.deadline = NOW + 1
    fair = line(sooner, queued(1))
    assert fair.nearest_deadline == NOW + 1
    fair.leave(sooner)
    assert fair.nearest_deadline == NOW + 30


def test_deadlines_of_those_who_left_take_no_room() -> None:
    fair = line()
    for number in range(10_000):
        each = queued(number)
        fair.join(each)
        fair.leave(each)
    assert len(fair._deadlines) < 100


def test_counters_of_idle_tenants_are_forgotten_at_last() -> None:
    accounts = VirtualTokenCounters()
    for number in range(IDLE + 10):
        accounts.enter(f"t{number}", 1)
        accounts.charge(f"t{number}", 5.0, 1)
        accounts.leave(f"t{number}")
    assert accounts.counter("t0") == 0
    assert accounts.counter(f"t{IDLE + 9}") > 0


def test_the_peak_is_remembered_for_a_window_and_forgotten_after_two() -> None:
    peak = WindowedMax()
    peak.observe(7, NOW)
    peak.observe(2, NOW + 1)
    assert peak.observe(0, NOW + WINDOW_S - 1) == 7
    assert peak.observe(0, NOW + 3 * WINDOW_S) == 0


def test_the_largest_holder_is_found_after_he_gave_back() -> None:
    shares = TenantShares()
    shares.add("a", 1, 10)
    shares.add("b", 1, 6)
    shares.remove("a", 9)
    assert shares.displaceable("c", 1, 1, 7) == "b"
    assert shares.displaceable("c", 1, 1, 30) is None


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 9)), max_size=60), st.integers(1, 60))
def test_whoever_must_make_room_is_above_his_share(taken: list[tuple[str, int]], limit: int) -> None:
    shares, amounts = TenantShares(), dict[str, int]()
    for tenant, amount in taken:
        shares.add(tenant, 1, amount)
        amounts[tenant] = amounts.get(tenant, 0) + amount
    holder = shares.displaceable("z", 1, 1, limit)
    above = {tenant for tenant, amount in amounts.items() if amount > max(limit / (len(amounts) + 1), 1)}
    assert (holder in above) if above else holder is None


@pytest.mark.parametrize(("weight", "quantum"), [(1, True), (1, False), (3, True)])
@given(seed=st.integers(0, 2**32))
def test_two_who_wait_are_served_alike_within_the_bound_of_vtc(seed: int, weight: int, quantum: bool) -> None:
    """|W_a/w_a - W_b/w_b| <= 2 max(w_in L_in, w_out M), where M tokens fit into a batch; real outputs differ freely."""
    slots, longest_in, longest_out, steps = 4, 50, 30, 300
    bound = 2 * max(longest_in, 2 * slots * (longest_in + longest_out))
    dice, weights = random.Random(seed), {"a": 1, "b": weight}
    own = {tenant: (dice.randint(1, longest_in), dice.randint(0, longest_out)) for tenant in "ab"}
    fair, served, running = FairQueue(), {"a": 0.0, "b": 0.0}, list[tuple[QueuedRequest, int, int]]()
    for number in range(steps):
        for place, tenant in enumerate("ab"):  # both are backlogged all the time
            tokens, output = dice.randint(1, own[tenant][0]), dice.randint(0, longest_out)
            fair.join(queued(2 * number + place, tenant, tokens, weight=weights[tenant], output=output))
        if len(running) == slots:
            done, uncached, output = running.pop(dice.randrange(slots))
            fair.settle(done, uncached + 2 * output)
            served[done.tenant] += 2 * output / weights[done.tenant]
        gone = fair.next((lambda t: t.id % 7) if quantum else None)
        assert gone is not None
        uncached = dice.randint(1, gone.prompt_tokens)
        gone.cached_tokens = gone.prompt_tokens - uncached
        fair.went(gone)
        served[gone.tenant] += uncached / weights[gone.tenant]
        running.append((gone, uncached, dice.randint(0, own[gone.tenant][1])))
        assert abs(served["a"] - served["b"]) <= bound


@pytest.mark.parametrize("quantum", [False, True])
@given(seed=st.integers(0, 2**32))
def test_two_who_wait_are_served_alike_from_whenever_they_wait(seed: int, quantum: bool) -> None:
    """However all came and went before: within 3 U, and 2 U more where cached prefixes are preferred."""
    dice, fair = random.Random(seed), FairQueue()
    largest = {tenant: dice.choice([50, 100]) for tenant in "abc"}
    weights = {tenant: dice.choice([1, 2]) for tenant in "abc"}
    wish = dict.fromkeys("abc", 1.0)
    served, since = {"a": 0.0, "b": 0.0, "c": 0.0}, list[float]()
    most = max(largest[tenant] / weights[tenant] for tenant in "abc")
    for number in range(200):
        if number % 20 == 0:
            wish = {tenant: dice.choice([0.0, 0.0, 3.0]) for tenant in "abc"}
        for place, tenant in enumerate("abc"):
            if fair.shares.of(tenant) < wish[tenant] * dice.random():
                tokens = largest[tenant] if dice.random() < 0.8 else dice.randint(1, largest[tenant])
                fair.join(queued(3 * number + place, tenant, tokens, weight=weights[tenant]))
        gone = fair.next((lambda t: t.id % 7) if quantum else None)
        if gone is not None:
            fair.went(gone)
            served[gone.tenant] += gone.prompt_tokens / gone.weight
        since = [*since, served["a"] - served["b"]] if fair.shares.of("a") and fair.shares.of("b") else []
        assert max(since, default=0.0) - min(since, default=0.0) <= (5 if quantum else 3) * most


class Days(RuleBasedStateMachine):
    """Random days in a line of three tenants."""

    def __init__(self) -> None:
        super().__init__()
        self.fair = FairQueue()
        self.now = NOW
        self.number = 0
        self.joined: dict[int, QueuedRequest] = {}
        self.gone: dict[int, QueuedRequest] = {}

    @rule(
        tenant=st.sampled_from("abc"),
        tokens=st.integers(1, 99),
        patience=st.integers(0, 9),
        in_time_s=st.sampled_from([0.0, 2.0, inf]),
    )
    def join(self, tenant: str, tokens: int, patience: int, in_time_s: float) -> None:
        self.number += 1
        new = self.joined[self.number] = queued(self.number, tenant, tokens, weight=1 + ord(tenant) % 2, output=3)
        new.joined, new.deadline, new.in_time_s = self.now, self.now + patience, in_time_s
        self.fair.join(new)

    @rule(cached=st.booleans())
    def give_out(self, cached: bool) -> None:
        self.fair.expire(self.now)
        gone = self.fair.next((lambda t: t.id % 5) if cached else None)
        assert (gone is None) == (self.fair.willing == 0)
        if gone is not None:
            assert gone.deadline > self.now
            self.fair.went(gone)
            self.gone[gone.id] = self.joined.pop(gone.id)

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), again=st.booleans(), resumed=st.booleans())
    def end(self, data: st.DataObject, again: bool, resumed: bool) -> None:
        each = self.gone.pop(data.draw(st.sampled_from(sorted(self.gone))))
        if again:
            each.deadline, each.resumed = self.now + 5, resumed
            self.fair.join(each, front=True)
            self.joined[each.id] = each
        else:
            self.fair.settle(each, 20.0)

    @precondition(lambda self: self.joined)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        assert self.fair.leave(self.joined.pop(data.draw(st.sampled_from(sorted(self.joined)))))

    @rule(seconds=st.integers(0, 4))
    def wait(self, seconds: int) -> None:
        self.now += seconds

    @invariant()
    def everybody_stands_somewhere_and_is_counted(self) -> None:
        fair, waiting = self.fair, self.joined.values()
        assert {each.id for each in fair} == set(self.joined)
        assert (len(fair), fair.shares.total) == (len(waiting), len(waiting))
        assert fair.willing + len(fair.late) == len(fair)
        assert fair.prompt_tokens == sum(each.prompt_tokens for each in waiting)
        assert (fair.size, fair.cost) == (40 * len(waiting), sum(each.cost for each in waiting))
        for tenant in "abc":
            assert fair.costs.get(tenant, 0) == sum(each.cost for each in waiting if each.tenant == tenant)
        on_time = [each.deadline for each in waiting if each not in fair.late]
        assert fair.nearest_deadline == min(on_time, default=None)

    @invariant()
    def the_active_are_those_with_somebody_to_give_out(self) -> None:
        late = set(self.fair.late)
        fresh = {t.tenant for t in self.joined.values() if t not in late and not t.charged}
        assert len(self.fair.accounts) == len(fresh)
        assert self.fair.accounts.weight == sum(1 + ord(tenant) % 2 for tenant in fresh)


TestDays = Days.TestCase
