import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.pieces import endpoint, report

from paceline_core.registry import RequestClass
from paceline_core.wire import KVLoad, StepTime, WorkerState
from paceline_gateway.routing.circuit_breaker import PAUSE_S
from paceline_gateway.routing.policies import Candidate, RoutingRequest, ShortestTTFT, seconds
from paceline_gateway.routing.worker import RAMP_S, REPORT_LAG_S, WorkerHealth
from paceline_gateway.routing.worker_pool import WorkerPool

NOW = 50.0
CLS = RequestClass.INTERACTIVE


def fleet(*names: str, now: float = NOW) -> WorkerPool:
    made = WorkerPool(ShortestTTFT(0.5), silence_s=2.0, lookahead_s=0.5, prefix_bytes=1 << 20)
    made.update(endpoint(name, port=index) for index, name in enumerate(names))
    for name in names:
        made.on_report(name, report(name), now - RAMP_S)
        made.on_report(name, report(name), now)
    return made


def picked(made: WorkerPool, tokens: int = 10, now: float = NOW, avoid: frozenset[str] = frozenset()) -> str | None:
    pick = made.pick(RoutingRequest(tokens), now, avoid)
    return None if pick is None else pick.worker.name


def test_the_worker_with_the_least_work_ahead_is_picked() -> None:
    made = fleet("a", "b", "c")
    for name, queued in (("a", 300), ("b", 20), ("c", 200)):
        made.on_report(name, report(name, queued_tokens={CLS: queued}), NOW)
    assert picked(made) == "b"


def test_work_is_time_so_a_fast_worker_may_have_more_tokens_ahead() -> None:
    made = fleet("fast", "slow")
    made.on_report("fast", report("fast", queued_tokens={CLS: 300}, step_time=StepTime(base=0.01, prefill=0.0001)), NOW)
    made.on_report("slow", report("slow", queued_tokens={CLS: 100}), NOW)
    assert picked(made) == "fast"


def test_what_was_dispatched_since_the_report_counts() -> None:
    made = fleet("a", "b")
    chosen = made.pick(RoutingRequest(100), NOW)
    assert chosen is not None
    chosen.worker.take(1, 100, CLS, NOW, stream=True)
    assert picked(made) not in (None, chosen.worker.name)


def test_a_begun_stream_is_no_prompt_work_any_more() -> None:
    made = fleet("a")
    worker = made.workers.get("a")
    assert worker is not None
    worker.take(1, 100, CLS, NOW, stream=True)
    worker.take(2, 30, CLS, NOW, stream=True)
    assert worker.backlog == 130
    worker.began(1)
    assert worker.backlog == 30
    worker.give(1, NOW)
    worker.give(2, NOW)
    assert (worker.backlog, worker.in_flight) == (0, 0)


def test_a_whole_answers_prompt_counts_until_a_report_must_include_it() -> None:
    made = fleet("a")
    worker = made.workers.get("a")
    assert worker is not None
    worker.take(1, 100, CLS, NOW, stream=False)
    worker.on_report(report(), NOW + REPORT_LAG_S / 2)
    assert worker.backlog == 100
    worker.on_report(report(), NOW + REPORT_LAG_S * 2)
    assert worker.backlog == 0
    worker.give(1, NOW)
    assert worker.backlog == 0


def test_what_went_there_since_the_report_is_added_to_the_workers_own_count() -> None:
    made = fleet("a")
    made.on_report("a", report(queued_tokens={CLS: 70, RequestClass.BATCH: 30}), NOW)
    worker = made.workers.get("a")
    assert worker is not None
    worker.take(1, 40, CLS, NOW, stream=True)
    assert worker.backlog == 140
    worker.on_report(report(queued_tokens={CLS: 90}), NOW)
    assert worker.backlog == 90
    worker.began(1)
    assert worker.backlog == 90
    worker.on_report(report(), NOW)
    assert worker.backlog == 0


def test_equals_take_turns() -> None:
    made = fleet("a", "b", "c")
    assert [picked(made) for _ in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_among_equals_the_emptier_one_goes_first() -> None:
    made = fleet("a", "b")
    worker = made.workers.get("a")
    assert worker is not None
    worker.take(1, 5, CLS, NOW, stream=True)
    worker.began(1)
    assert [picked(made), picked(made)] == ["b", "b"]


def test_pages_in_use_make_steps_longer() -> None:
    made = fleet("full", "empty")
    step = StepTime(base=0.01, prefill=0.001, kv=0.00001)
    made.on_report("full", report("full", kv=KVLoad(page_tokens=16, total=100, free=10), step_time=step), NOW)
    made.on_report(
        "empty", report("empty", kv=KVLoad(page_tokens=16, total=100, free=10, cached=90), step_time=step), NOW
    )
    assert picked(made) == "empty"


def test_a_full_worker_is_not_picked() -> None:
    made = fleet("a")
    worker = made.workers.get("a")
    assert worker is not None
    for number in range(4):
        worker.take(number, 1, CLS, NOW, stream=True)
        worker.began(number)
    assert picked(made) is None


def test_gateways_that_share_a_worker_have_equal_shares_of_its_slots() -> None:
    made = fleet("a")
    made.on_report("a", report("a", slots=4, gateways=3), NOW)
    worker = made.workers.get("a")
    assert worker is not None
    for number in range(2):
        assert picked(made) == "a"
        worker.take(number, 0, CLS, NOW, stream=True)
    assert picked(made) is None
    made.on_report("a", report("a", slots=4, gateways=2, running=4), NOW)
    assert picked(made) is None
    made.on_report("a", report("a", slots=4, running=2), NOW)
    assert picked(made) == "a"


@pytest.mark.parametrize(
    ("state", "standing"),
    [
        (WorkerState.READY, WorkerHealth.READY),
        (WorkerState.STARTING, WorkerHealth.STARTING),
        (WorkerState.DRAINING, WorkerHealth.DRAINING),
        (WorkerState.FAILED, WorkerHealth.FAILED),
    ],
)
def test_only_a_ready_worker_is_picked(state: WorkerState, standing: WorkerHealth) -> None:
    made = fleet("a")
    made.on_report("a", report(state=state), NOW)
    assert made.standings(NOW)[standing] == 1
    assert (picked(made) == "a") == (state is WorkerState.READY)


def test_a_terminating_pod_drains_whatever_it_says() -> None:
    made = fleet("a")
    made.update([endpoint("a", port=0, terminating=True)])
    assert made.standings(NOW)[WorkerHealth.DRAINING] == 1
    assert picked(made) is None


def test_a_worker_that_has_never_reported_is_starting() -> None:
    made = WorkerPool(ShortestTTFT(0.5), silence_s=2.0, lookahead_s=0.5, prefix_bytes=1 << 20)
    made.update([endpoint("a")])
    assert made.standings(NOW)[WorkerHealth.STARTING] == 1
    assert picked(made) is None


def test_a_silent_worker_is_picked_only_when_nobody_else_is_left() -> None:
    made = fleet("silent", "ready")
    made.on_report("ready", report("ready", queued_tokens={CLS: 400}), NOW + 3)
    assert made.standings(NOW + 3)[WorkerHealth.SILENT] == 1
    assert picked(made, now=NOW + 3) == "ready"
    made.disconnected("ready")
    assert picked(made, now=NOW + 3) == "silent"


def test_a_worker_whose_stream_was_cut_is_silent_at_once() -> None:
    made = fleet("a")
    made.disconnected("a")
    assert made.standings(NOW)[WorkerHealth.SILENT] == 1


def test_a_silent_worker_that_is_not_even_ready_is_never_picked() -> None:
    made = fleet("a")
    made.disconnected("a")
    made.update([endpoint("a", port=0, ready=False)])
    assert picked(made) is None


def test_a_suspect_lets_others_go_first_for_a_moment() -> None:
    made = fleet("a")
    worker = made.workers.get("a")
    assert worker is not None
    worker.take(1, 5, CLS, NOW, stream=True)
    worker.give(1, NOW, failed=True)
    assert picked(made) is None
    assert picked(made, now=NOW + PAUSE_S) == "a"


def test_workers_to_avoid_are_avoided_if_there_are_others() -> None:
    made = fleet("a", "b")
    assert [picked(made, avoid=frozenset({"a"})) for _ in range(3)] == ["b", "b", "b"]
    assert picked(made, avoid=frozenset({"a", "b"})) is not None


def test_a_worker_to_avoid_is_better_than_a_blocked_queue() -> None:
    made = fleet("a", "b")
    full = made.workers.get("b")
    assert full is not None
    for number in range(4):
        full.take(number, 1, CLS, NOW, stream=True)
    assert picked(made, avoid=frozenset({"a"})) == "a"


def test_a_name_under_another_address_is_another_worker() -> None:
    made = fleet("a")
    old = made.workers.get("a")
    made.update([endpoint("a", port=7)])
    new = made.workers.get("a")
    assert new is not old
    assert new is not None
    assert new.report is None


def test_what_is_known_of_a_worker_stays_when_the_list_is_sent_again() -> None:
    made = fleet("a")
    old = made.workers.get("a")
    made.update([endpoint("a", port=0)])
    assert made.workers.get("a") is old


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 4)), min_size=1, max_size=6), st.integers(1, 2000))
def test_whoever_is_picked_had_room_and_none_with_room_had_less_work(
    workers: list[tuple[int, int]], tokens: int
) -> None:
    names = [f"w{index}" for index in range(len(workers))]
    made = fleet(*names)
    for name, (queued, running) in zip(names, workers, strict=True):
        made.on_report(name, report(name, queued_tokens={CLS: queued}), NOW)
        worker = made.workers.get(name)
        assert worker is not None
        for number in range(running):
            worker.take(number, 0, CLS, NOW, stream=True)
    open_ones = [worker for worker in made if worker.in_flight < 4 and worker.backlog * worker.token_s < 0.5]
    least = min((seconds(Candidate(worker), RoutingRequest(tokens), 0) for worker in open_ones), default=None)
    chosen = made.pick(RoutingRequest(tokens), NOW)
    assert (chosen is None) == (not open_ones)
    if chosen is not None:
        assert chosen.worker in open_ones
        assert seconds(Candidate(chosen.worker), RoutingRequest(tokens), 0) == chosen.cost_s == least


def test_a_worker_that_was_retired_comes_back_with_all_of_its_slots() -> None:
    made = fleet("a")
    worker = made.workers.get("a")
    assert worker is not None
    made.on_report("a", report("a", state=WorkerState.DRAINING, retired=True), NOW)
    assert picked(made) is None
    made.on_report("a", report("a"), NOW)
    assert (picked(made), worker.ramped(NOW)) == ("a", worker.share)
    made.on_report("a", report("a", state=WorkerState.DRAINING), NOW)
    made.on_report("a", report("a"), NOW)
    assert worker.ramped(NOW) < worker.share
