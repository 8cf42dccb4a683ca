"""The waiting room: order, caps, holding, release, and nobody lost on the way."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.gateway.pieces import endpoint, report

from paceline_core.errors import Code
from paceline_core.registry import RequestClass
from paceline_core.wire import StepTime, WorkerState
from paceline_gateway.queueing.dispatcher import Dispatcher, QueueLimits
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.queueing.shedding import LATEST_S, SOONEST_S, UNKNOWN_S, DispatchRate
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.routing.worker import Worker
from paceline_gateway.routing.worker_pool import WorkerPool

NOW = 100.0
INTERACTIVE, BATCH, OFFLINE = RequestClass


def dispatcher(*workers: str, held: int = 100, size: int = 10**6, slots: int = 4) -> Dispatcher:
    fleet = WorkerPool(ShortestTTFT(0.5), silence_s=2.0, lookahead_s=0.5, prefix_bytes=1 << 20)
    fleet.update(endpoint(name) for name in workers)
    for name in workers:
        fleet.on_report(name, report(name, slots=slots), NOW)
    return Dispatcher(fleet, QueueLimits(held=held, size=size))


def queued(number: int, cls: RequestClass = INTERACTIVE, tokens: int = 10, size: int = 40) -> QueuedRequest:
    return QueuedRequest(number, cls, tokens, size, deadline=NOW + 30)


def order(assigned: list[tuple[QueuedRequest, Worker]]) -> list[int]:
    return [queued.id for queued, _ in assigned]


def test_first_come_first_served_within_a_class_and_urgency_between_them() -> None:
    queue = dispatcher("w0", slots=8)
    for number, cls in enumerate([OFFLINE, BATCH, INTERACTIVE, BATCH, INTERACTIVE]):
        queue.join(queued(number, cls), NOW)
    assert order(queue.dispatch(NOW)) == [2, 4, 1, 3, 0]


def test_a_run_that_is_called_from_within_begins_another_round_and_does_not_nest() -> None:
    queue, went, late = dispatcher("w0", slots=2), list[int](), list[int]()
    requests = [queued(number) for number in range(5)]
    for each in requests:
        queue.join(each, NOW)

    def assigned(each: QueuedRequest, _: Worker) -> None:
        went.append(each.id)
        if each.id < 2:
            queue.release(each, NOW, suspect=False)
            assert not queue.run(lambda: NOW, assigned, lambda other: late.append(other.id))
            assert went == list(range(each.id + 1))

    assert queue.run(lambda: NOW, assigned, lambda other: late.append(other.id))
    assert (went, late, queue.waiting) == ([0, 1, 2, 3], [], 1)
    requests[4].deadline = NOW
    queue.queues[INTERACTIVE].leave(requests[4])
    queue.queues[INTERACTIVE].join(requests[4])
    assert queue.run(lambda: NOW, assigned, lambda other: late.append(other.id))
    assert late == [4]


def test_no_more_go_than_there_are_slots() -> None:
    queue = dispatcher("w0", "w1", slots=2)
    requests = [queued(number) for number in range(6)]
    for each in requests:
        queue.join(each, NOW)
    assert len(queue.dispatch(NOW)) == 4
    assert queue.dispatch(NOW) == []
    queue.release(requests[0], NOW, suspect=False)
    assert order(queue.dispatch(NOW)) == [4]
    assert queue.waiting == 1


def test_a_worker_is_not_given_more_prompt_work_than_it_can_start_soon() -> None:
    # 1 ms per prompt token and half a second of lookahead: the third prompt of 300 tokens waits
    queue = dispatcher("w0")
    requests = [queued(number, tokens=300) for number in range(3)]
    for each in requests:
        queue.join(each, NOW)
    assert order(queue.dispatch(NOW)) == [0, 1]
    queue.pool.workers["w0"].began(requests[0].id)
    assert order(queue.dispatch(NOW)) == [2]


def test_a_prompt_longer_than_the_lookahead_still_goes_to_an_idle_worker() -> None:
    queue = dispatcher("w0")
    queue.join(queued(0, tokens=100_000), NOW)
    assert order(queue.dispatch(NOW)) == [0]


def test_a_worker_that_joins_takes_what_already_waits() -> None:
    queue = dispatcher("w0", slots=1)
    for number in range(3):
        queue.join(queued(number), NOW)
    queue.dispatch(NOW)
    queue.pool.update([endpoint("w0"), endpoint("w1")])
    queue.pool.on_report("w1", report("w1", slots=1), NOW)
    ((moved, worker),) = queue.dispatch(NOW)
    assert (moved.id, worker.name) == (1, "w1")


def test_requests_are_held_while_no_worker_is_eligible() -> None:
    queue = dispatcher()
    queue.join(queued(0), NOW)
    assert queue.held(NOW) == 1
    assert queue.dispatch(NOW) == []
    queue.pool.update([endpoint("w0")])
    queue.pool.on_report("w0", report("w0"), NOW)
    assert queue.held(NOW) == 0
    assert order(queue.dispatch(NOW)) == [0]


def test_a_full_class_refuses_with_retry_after() -> None:
    queue = dispatcher("w0", slots=1)
    for number in range(3):
        queue.join(queued(number), NOW)
    queue.dispatch(NOW)
    refusal = queue.refusal(INTERACTIVE, 40, 2, NOW)
    assert refusal is not None
    assert refusal.code is Code.QUEUE_FULL
    assert refusal.retry_after is not None
    assert SOONEST_S <= refusal.retry_after <= LATEST_S
    assert queue.refusal(BATCH, 40, 2, NOW) is None


def test_a_queue_limit_of_zero_means_at_once_or_not_at_all() -> None:
    queue = dispatcher("w0", slots=1)
    assert queue.refusal(INTERACTIVE, 40, 0, NOW) is None
    queue.join(queued(0), NOW)
    queue.dispatch(NOW)
    assert queue.refusal(INTERACTIVE, 40, 0, NOW) is not None


def test_held_requests_have_a_cap_of_their_own() -> None:
    queue = dispatcher(held=2)
    for number in range(2):
        assert queue.refusal(INTERACTIVE, 40, 100, NOW) is None
        queue.join(queued(number), NOW)
    refusal = queue.refusal(INTERACTIVE, 40, 100, NOW)
    assert refusal is not None
    assert refusal.code is Code.NO_CAPACITY
    assert refusal.retry_after == UNKNOWN_S


def test_bytes_of_waiting_bodies_are_capped() -> None:
    queue = dispatcher(size=100)
    queue.join(queued(0, size=60), NOW)
    assert queue.refusal(BATCH, 40, 100, NOW) is None
    refusal = queue.refusal(BATCH, 41, 100, NOW)
    assert refusal is not None
    assert refusal.code is Code.QUEUE_FULL


def test_who_lost_its_worker_goes_first_and_elsewhere() -> None:
    queue = dispatcher("w0", "w1", slots=1)
    first, second, third = (queued(number) for number in range(3))
    for each in (first, second, third):
        queue.join(each, NOW)
    placed = {each.id: worker.name for each, worker in queue.dispatch(NOW)}
    queue.release(first, NOW, suspect=False)
    queue.release(second, NOW, suspect=False)
    queue.rejoin(first, NOW + 30)
    assigned = queue.dispatch(NOW)
    assert order(assigned) == [0, 2]
    assert assigned[0][1].name != placed[0]


def test_the_only_worker_is_tried_again_after_it_failed_once() -> None:
    queue = dispatcher("w0")
    lost = queued(0)
    queue.join(lost, NOW)
    queue.dispatch(NOW)
    queue.release(lost, NOW, suspect=True)
    queue.rejoin(lost, NOW + 30)
    assert queue.dispatch(NOW) == []
    assert queue.held(NOW) == 1
    assert order(queue.dispatch(NOW + 1.5)) == [0]


def test_the_drain_rate_predicts_the_wait() -> None:
    rate = DispatchRate()
    now = 0.0
    for _ in range(400):
        now += 0.25
        rate.departed(now)
    assert 3.6 < rate.per_second(now) < 4.4
    assert 9.0 < rate.retry_after(40, now) < 11.0


def test_idle_hours_before_a_burst_do_not_make_its_clients_wait_longer() -> None:
    rate, now = DispatchRate(), 3600.0
    rate.departed(0.0)
    for _ in range(200):
        now += 0.01
        rate.departed(now)
    assert 1.6 < rate.retry_after(200, now) < 2.4


@given(st.lists(st.floats(0, 100), max_size=50), st.integers(1, 10_000), st.floats(0, 1000))
def test_retry_after_is_always_within_its_bounds(waits: list[float], waiting: int, later: float) -> None:
    rate, now = DispatchRate(), 0.0
    for wait in waits:
        now += wait
        rate.departed(now)
    assert SOONEST_S <= rate.retry_after(waiting, now + later) <= LATEST_S


class Room(RuleBasedStateMachine):
    """Random days in the waiting room."""

    def __init__(self) -> None:
        super().__init__()
        self.service = dispatcher("w0", "w1", slots=3)
        self.now = NOW
        self.number = 0
        self.joined: dict[int, QueuedRequest] = {}
        self.gone: dict[int, QueuedRequest] = {}

    @rule(cls=st.sampled_from(RequestClass), tokens=st.integers(1, 900))
    def join(self, cls: RequestClass, tokens: int) -> None:
        self.number += 1
        new = queued(self.number, cls, tokens)
        if self.service.refusal(cls, new.size, 5, self.now) is None:
            self.service.join(new, self.now)
            self.joined[new.id] = new

    @rule()
    def assign(self) -> None:
        for each, _ in self.service.dispatch(self.now):
            del self.joined[each.id]
            self.gone[each.id] = each

    @precondition(lambda self: self.joined)
    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        self.service.withdraw(self.joined.pop(data.draw(st.sampled_from(sorted(self.joined)))))

    @precondition(lambda self: self.gone)
    @rule(data=st.data(), suspect=st.booleans(), again=st.booleans())
    def free(self, data: st.DataObject, suspect: bool, again: bool) -> None:
        each = self.gone.pop(data.draw(st.sampled_from(sorted(self.gone))))
        self.service.release(each, self.now, suspect=suspect)
        if again:
            self.service.rejoin(each, self.now + 30)
            self.joined[each.id] = each

    @precondition(lambda self: self.gone)
    @rule(data=st.data())
    def begin(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.gone)))
        self.service._in_flight[number].began(number)

    @rule(name=st.sampled_from(["w0", "w1"]), state=st.sampled_from(WorkerState), queued=st.integers(0, 3000))
    def say(self, name: str, state: WorkerState, queued: int) -> None:
        step = StepTime(base=0.01, prefill=0.001)
        line = report(name, slots=3, state=state, queued_tokens={INTERACTIVE: queued}, step_time=step)
        self.service.pool.on_report(name, line, self.now)

    @rule(seconds=st.floats(0, 5))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def nobody_is_lost(self) -> None:
        standing = {each.id for line in self.service.queues.values() for each in line}
        assert standing == set(self.joined)
        assert self.service.waiting == len(self.joined)
        assert self.service.size == sum(each.size for each in self.joined.values())

    @invariant()
    def slots_are_kept(self) -> None:
        flights = [worker.in_flight for worker in self.service.pool]
        assert sum(flights) == len(self.gone)
        assert all(0 <= flight <= 3 for flight in flights)

    @invariant()
    def sums_are_right(self) -> None:
        for line in self.service.queues.values():
            assert line.prompt_tokens == sum(each.prompt_tokens for each in line)
        for worker in self.service.pool:
            assert sum(worker.unbegun_tokens) == sum(flight.tokens for flight in worker.unbegun.values())


TestRoom = Room.TestCase
