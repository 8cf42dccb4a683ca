"""Who comes while nobody waits goes at once, and leaves everything as if he had stood in line."""

from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.pieces import endpoint, report

from paceline_core.registry import RequestClass
from paceline_gateway.queueing.dispatcher import Dispatcher, QueueLimits
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.routing.worker import Worker
from paceline_gateway.routing.worker_pool import WorkerPool

NOW = 100.0
STEP = st.tuples(
    st.sampled_from("abc"), st.sampled_from(RequestClass), st.integers(1, 400), st.integers(0, 50), st.floats(0, 40)
)


def dispatcher(slots: int = 4) -> Dispatcher:
    fleet = WorkerPool(ShortestTTFT(0.5), silence_s=1000.0, lookahead_s=0.5, prefix_bytes=1 << 20)
    fleet.update([endpoint("w0"), endpoint("w1")])
    for name in ("w0", "w1"):
        fleet.on_report(name, report(name, slots=slots), NOW)
    return Dispatcher(fleet, QueueLimits(held=100, size=10**6))


def queued(number: int, tenant: str, cls: RequestClass, tokens: int, output: int, now: float) -> QueuedRequest:
    weight = 1 + (tenant == "b")
    return QueuedRequest(number, cls, tokens, 40, now + 30, tenant=tenant, weight=weight, expected_output=output)


def stood(room: Dispatcher, who: QueuedRequest, now: float) -> Worker | None:
    room.join(who, now)
    gone = room.dispatch(now)
    return gone[0][1] if gone else None


def state(room: Dispatcher, now: float) -> list[object]:
    """All that the next one's turn, worker and predictions rest on."""
    lines = [
        (line.accounts.time, [line.accounts.counter(tenant) for tenant in "abc"], line.taken(), line.cost)
        for line in room.queues.values()
    ]
    pace = [room.wait_s(name, now) for name in RequestClass]
    return [lines, pace, room.pool.reserved, [(worker.in_flight, worker.work) for worker in room.pool]]


@given(st.lists(STEP, max_size=12))
def test_direct_dispatch_leaves_the_same_state_as_queueing(
    steps: list[tuple[str, RequestClass, int, int, float]],
) -> None:
    straight, in_line, now = dispatcher(), dispatcher(), NOW
    for number, (tenant, cls, tokens, output, seconds) in enumerate(steps):
        one, other = (queued(number, tenant, cls, tokens, output, now) for _ in range(2))
        here, there = straight.pass_by(one, now), stood(in_line, other, now)
        assert (here and here.name) == (there and there.name)
        if here is None:
            break
        assert vars_of(one) == vars_of(other)
        assert state(straight, now) == state(in_line, now)
        now += seconds
        if number % 3:
            for room, each in ((straight, one), (in_line, other)):
                room.release(each, now, suspect=False)
                room.queues[each.request_class].settle(each, tokens + 2.0)


def vars_of(who: QueuedRequest) -> list[object]:
    return [getattr(who, name) for name in QueuedRequest.__slots__]


def test_nobody_passes_those_who_wait() -> None:
    room = dispatcher(slots=1)
    for number in range(3):
        room.join(queued(number, "a", RequestClass.BATCH, 10, 0, NOW), NOW)
    assert len(room.dispatch(NOW)) == 2
    assert room.pass_by(queued(3, "b", RequestClass.INTERACTIVE, 10, 0, NOW), NOW) is None
    assert room.waiting == 1


def test_nobody_passes_by_where_nobody_has_room() -> None:
    room = dispatcher(slots=1)
    first, second, third = (queued(number, "a", RequestClass.BATCH, 10, 0, NOW) for number in range(3))
    assert room.pass_by(first, NOW) is not None
    assert room.pass_by(second, NOW) is not None
    assert room.pass_by(third, NOW) is None
    room.join(third, NOW)
    room.release(first, NOW, suspect=False)
    assert [who.id for who, _ in room.dispatch(NOW)] == [2]
