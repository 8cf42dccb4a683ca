"""Who may wait, who must make room, how classes share workers; nobody starves, nobody waits beside usable room."""

import random

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.gateway.pieces import endpoint, report

from paceline_core.errors import Code
from paceline_core.registry import RequestClass
from paceline_core.registry.enums import ShedReason
from paceline_gateway.queueing.dispatcher import Dispatcher, QueueLimits
from paceline_gateway.queueing.fair_queue import STARVED_S
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.queueing.shedding import ShedDecision
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.routing.worker import RAMP_S
from paceline_gateway.routing.worker_pool import WorkerPool

NOW = 100.0
INTERACTIVE, BATCH, OFFLINE = RequestClass
LIMIT = 12


def dispatcher(*workers: str, held: int = 100, size: int = 10**6, slots: int = 4) -> Dispatcher:
    fleet = WorkerPool(ShortestTTFT(0.5), silence_s=1e9, lookahead_s=0.5, prefix_bytes=1 << 20)
    fleet.update(endpoint(name) for name in workers)
    for name in workers:
        fleet.on_report(name, report(name, slots=slots), NOW - RAMP_S)
    return Dispatcher(fleet, QueueLimits(held=held, size=size))


def queued(number: int, tenant: str = "a", cls: RequestClass = INTERACTIVE, size: int = 40) -> QueuedRequest:
    return QueuedRequest(number, cls, 10, size, deadline=NOW + 600, tenant=tenant)


def crowded(*tenants: str, slots: int = 1) -> Dispatcher:
    """A worker that is taken, and one who waits for each letter."""
    queue = dispatcher("w0", slots=slots)
    for number in range(slots):
        queue.join(queued(-1 - number, "first"), NOW)
    queue.dispatch(NOW)
    for number, tenant in enumerate("".join(tenants)):
        queue.join(queued(number, tenant), NOW)
    return queue


def shed(queue: Dispatcher, tenant: str, limit: int, now: float = NOW) -> ShedDecision:
    found = queue.shed(queued(99, tenant), limit, now)
    assert found is not None
    return found


def test_a_single_tenant_may_fill_the_queue() -> None:
    queue = crowded("aaa")
    assert queue.shed(queued(99), 4, NOW) is None
    full = shed(queue, "a", 3)
    assert (full.queued.id, full.reason, full.error.code) == (99, ShedReason.QUEUE_FULL, Code.QUEUE_FULL)


def test_a_tenant_beyond_its_share_of_a_full_queue_is_refused_with_429() -> None:
    full = shed(crowded("aaab"), "a", 4)
    assert (full.queued.id, full.reason, full.error.row.status) == (99, ShedReason.TENANT_SHARE, 429)
    assert full.error.retry_after is not None


def test_one_below_his_share_takes_the_place_of_the_newest_of_the_largest() -> None:
    queue = crowded("aaab")
    full = shed(queue, "b", 4)
    assert (full.queued.id, full.reason, full.error.row.status) == (2, ShedReason.DISPLACED, 429)
    queue.withdraw(full.queued)
    assert queue.shed(queued(99, "b"), 4, NOW) is None


def test_a_full_queue_of_equals_refuses_a_new_tenant_with_503() -> None:
    full = shed(crowded("abcd"), "e", 4)
    assert (full.queued.id, full.reason, full.error.row.status) == (99, ShedReason.QUEUE_FULL, 503)


def test_a_begun_stream_is_never_displaced() -> None:
    queue = crowded("b")
    for number in range(10, 13):
        begun = queued(number, "a")
        begun.resumed = True
        queue.rejoin(begun, NOW + 60)
    assert shed(queue, "c", 4).queued.id == 99


def test_bytes_are_shared_too() -> None:
    queue = dispatcher(size=100)
    for number in range(2):
        queue.join(queued(number, "a", BATCH), NOW)
    full = queue.shed(queued(9, "b", size=50), 100, NOW)
    assert full is not None
    assert (full.queued.id, full.reason) == (1, ShedReason.DISPLACED)
    queue.withdraw(full.queued)
    assert queue.shed(queued(9, "b", size=50), 100, NOW) is None


def test_held_requests_are_shared_too() -> None:
    queue = dispatcher(held=3)
    for number in range(3):
        queue.join(queued(number, "a"), NOW)
    alone = queue.shed(queued(9, "a"), 100, NOW)
    assert alone is not None
    assert (alone.reason, alone.error.code) == (ShedReason.NO_WORKER, Code.NO_CAPACITY)
    other = queue.shed(queued(9, "b", OFFLINE), 100, NOW)
    assert other is not None
    assert (other.queued.id, other.error.row.status) == (2, 429)


def served(queue: Dispatcher, seconds: float, each: float = 1.0) -> float:
    """A worker with one slot ends a request of 10 tokens every so often; the time then."""
    now, end, under_way = NOW, NOW + seconds, [queued(-1)]
    while now < end:
        now += each
        for gone in under_way:
            queue.release(gone, now, suspect=False)
        under_way = [gone for gone, _ in queue.dispatch(now)]
    return now


def test_a_request_that_would_miss_its_deadline_is_refused_at_once_with_retry_after() -> None:
    queue = crowded("a" * 80)
    now = served(queue, 20)
    patient, hasty = queued(200), queued(201)
    patient.deadline, hasty.deadline = now + 50, now + 20
    assert queue.shed(patient, 1000, now) is None
    full = queue.shed(hasty, 1000, now)
    assert full is not None
    assert (full.reason, full.error.row.status) == (ShedReason.DEADLINE_UNREACHABLE, 503)
    assert full.error.retry_after is not None
    assert 33 < full.error.retry_after < 50  # 61 wait, one goes each second, and it may wait 20


def test_a_quiet_tenant_does_not_get_the_retry_after_of_a_noisy_one() -> None:
    queue = crowded("a" * 80)
    now = served(queue, 20)
    hasty = queued(201, "quiet")
    hasty.deadline = now + 5
    assert queue.shed(hasty, 1000, now) is None


def test_a_rate_that_is_not_known_yet_refuses_nobody() -> None:
    queue = crowded("a" * 80)
    now = served(queue, 5)
    hasty = queued(201)
    hasty.deadline = now + 1
    assert queue.shed(hasty, 1000, now) is None


def test_batch_leaves_free_what_interactive_requests_needed_lately() -> None:
    queue = dispatcher("w0", "w1", slots=8)
    lately = [queued(number) for number in range(4)]
    for each in lately:
        queue.join(each, NOW)
    queue.dispatch(NOW)
    for each in lately:
        queue.release(each, NOW + 1, suspect=False)
    for number in range(10, 40):
        queue.join(queued(number, "a", BATCH), NOW + 1)
    assert len(queue.dispatch(NOW + 1)) == 12
    for number in range(50, 60):
        queue.join(queued(number), NOW + 2)
    assert [gone.request_class for gone, _ in queue.dispatch(NOW + 2)] == [INTERACTIVE] * 4


def test_batch_may_fill_all_when_nobody_interactive_came_for_long() -> None:
    queue = dispatcher("w0", slots=8)
    for number in range(10):
        queue.join(queued(number, "a", BATCH), NOW)
    assert len(queue.dispatch(NOW)) == 8


def test_interactive_needs_never_take_more_than_half_of_a_worker_from_batch() -> None:
    queue = dispatcher("w0", slots=8)
    many = [queued(number) for number in range(50)]
    for each in many:
        queue.join(each, NOW)
    queue.dispatch(NOW)
    for each in many:
        queue.withdraw(each)
        queue.release(each, NOW, suspect=False)
    for number in range(100, 110):
        queue.join(queued(number, "a", BATCH), NOW)
    assert len(queue.dispatch(NOW)) == 4


def overloaded(seconds: int) -> list[RequestClass]:
    """Two slots, two seconds each; all classes always have somebody waiting. Who went, in order."""
    queue, went, number, under_way = dispatcher("w0", slots=2), list[RequestClass](), 0, list[QueuedRequest]()
    for second in range(seconds):
        now = NOW + second
        for name in RequestClass:
            while len(queue.queues[name]) < 20:
                number += 1
                joining = queued(number, "a", name)
                joining.deadline = now + 10_000
                queue.join(joining, now)
        if second % 2 == 0:
            for gone in under_way:
                queue.release(gone, now, suspect=False)
            under_way = [gone for gone, _ in queue.dispatch(now)]
            went += [gone.request_class for gone in under_way]
    return went


def test_sustained_interactive_overload_starves_no_class() -> None:
    went = overloaded(600)
    starved = int(STARVED_S[BATCH])
    assert set(went[:starved]) == {INTERACTIVE}
    later = went[int(STARVED_S[OFFLINE]) + 10 :]
    shares = {name: later.count(name) / len(later) for name in RequestClass}
    assert shares[INTERACTIVE] > 0.6
    assert 0.1 < shares[BATCH] < 0.3
    assert 0.05 < shares[OFFLINE] < 0.15


def test_a_short_patience_starves_sooner() -> None:
    queue = dispatcher("w0", slots=1)
    hasty = queued(0, "a", BATCH)
    hasty.deadline = NOW + 10
    under_way = [queued(1)]
    queue.join(under_way[0], NOW)
    queue.dispatch(NOW)
    queue.join(hasty, NOW)
    for second in range(1, 10):
        queue.join(queued(10 + second), NOW + second)
        for gone in under_way:
            queue.release(gone, NOW + second, suspect=False)
        under_way = [gone for gone, _ in queue.dispatch(NOW + second)]
        if under_way[0] is hasty:
            return
    raise AssertionError("it reached its deadline behind interactive requests that came later")


@given(seed=st.integers(0, 2**32))
def test_everybody_goes_or_expires_in_time(seed: int) -> None:
    """Random overload of all classes and tenants: nobody is given out late, nobody stands here after the deadline."""
    dice, queue, under_way = random.Random(seed), dispatcher("w0", "w1", slots=2), list[tuple[float, QueuedRequest]]()
    for step in range(300):
        now = NOW + step / 4
        joining = queued(step, dice.choice("aaaabc"), dice.choice(list(RequestClass)))
        joining.deadline = now + dice.choice((1, 5, 60))
        queue.join(joining, now)
        for done in [entry for entry in under_way if entry[0] <= now]:
            under_way.remove(done)
            queue.release(done[1], now, suspect=False)
            queue.queues[done[1].request_class].settle(done[1], dice.randint(1, 100))
        for gone, _ in queue.dispatch(now):
            assert gone.deadline > now
            under_way.append((now + dice.choice((0.3, 2)), gone))
        for late in queue.expired:
            queue.withdraw(late)
        assert all(now < each.deadline for line in queue.queues.values() for each in line)


class Hall(RuleBasedStateMachine):
    """Random days of a dispatcher whose door is asked by three tenants."""

    def __init__(self) -> None:
        super().__init__()
        self.service = dispatcher("w0", "w1", slots=4, size=40 * 20)
        self.now = NOW
        self.number = 0
        self.gone: dict[int, QueuedRequest] = {}

    @rule(cls=st.sampled_from(RequestClass), tenant=st.sampled_from("abc"), size=st.integers(1, 80))
    def come(self, cls: RequestClass, tenant: str, size: int) -> None:
        self.number += 1
        new = queued(self.number, tenant, cls, size)
        new.deadline = self.now + 20
        for _ in range(100):
            found = self.service.shed(new, LIMIT, self.now)
            if found is None:
                self.service.join(new, self.now)
                return
            if found.queued is new:
                return
            assert found.queued.tenant != tenant
            self.service.withdraw(found.queued)
        raise AssertionError("the door named somebody for ever")

    @rule()
    def assign(self) -> None:
        assigned = [each for each, _ in self.service.dispatch(self.now)]
        self.gone |= {each.id: each for each in assigned}
        # room only shrinks meanwhile: whoever goes late could have gone first
        assert [each.resumed for each in assigned] == sorted((each.resumed for each in assigned), reverse=True)
        fresh = {each.request_class for each in assigned if not each.resumed}
        assert not [name for name in fresh if self.service.queues[name].resumed]
        self.nobody_waits_beside_room()

    def nobody_waits_beside_room(self) -> None:
        for name, line in self.service.queues.items():
            if line.willing:
                assert not self.service.pool.has_room(self.now, name)
                return

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), again=st.booleans(), resumed=st.booleans())
    def end(self, data: st.DataObject, again: bool, resumed: bool) -> None:
        each = self.gone.pop(data.draw(st.sampled_from(sorted(self.gone))))
        self.service.release(each, self.now, suspect=False)
        if again:
            each.resumed |= resumed
            self.service.rejoin(each, self.now + 10)
        else:
            self.service.queues[each.request_class].settle(each, 20.0)

    @rule(seconds=st.floats(0, 30))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def bounds_hold(self) -> None:
        again = {name: sum(t.charged > 0 for t in line) for name, line in self.service.queues.items()}
        for name, line in self.service.queues.items():
            assert len(line) - again[name] <= LIMIT
        fresh = [t.size for line in self.service.queues.values() for t in line if not t.charged]
        assert sum(fresh) <= 40 * 20

    @invariant()
    def all_are_counted_once(self) -> None:
        waiting = [each for line in self.service.queues.values() for each in line]
        assert self.service.waiting == len(waiting)
        assert self.service.size == sum(each.size for each in waiting)
        assert sum(worker.in_flight for worker in self.service.pool) == len(self.gone)
        urgent = {each.id for each in self.gone.values() if each.request_class is INTERACTIVE}
        assert set[int]().union(*(worker.urgent for worker in self.service.pool)) == urgent


TestHall = Hall.TestCase
