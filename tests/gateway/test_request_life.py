"""The request machine alone: every state against every event that matters there, and laws over random histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import Code, RequestError
from paceline_core.registry import Outcome, Phase, RequestClass
from paceline_core.registry.enums import CutReason, ResumeReason
from paceline_gateway.requests import events as e
from paceline_gateway.requests.budget import RetryBudget
from paceline_gateway.requests.life import Actions, Life
from paceline_gateway.requests.nouns import Record, Terms, Waits
from paceline_gateway.requests.phases import phases
from paceline_gateway.requests.resumption import RESUMES
from paceline_gateway.requests.state import State

WAITS = Waits(first_token_s=10.0, stall_s=5.0, answer_s=60.0)
FULL = RequestError(Code.QUEUE_FULL, "full", retry_after=3.0)


def terms(*, stream: bool = True, attempts: int = 2) -> Terms:
    return Terms("default/chat", RequestClass.INTERACTIVE, stream, 100, 30.0, attempts)


def life_in(state: State, *, stream: bool = True, attempts: int = 2, retries: int = 10) -> Life:
    """A life driven to a state by the events that lead there; times 0, 1, 2 ... on the way."""
    life = Life(0.0, WAITS)
    steps: list[e.Event] = [
        e.Authenticated("team"),
        e.Admitted(terms(stream=stream, attempts=attempts), RetryBudget(0.0, floor=retries)),
        e.Queued(),
        e.Assigned("w0"),
        e.Began(),
    ]
    for now, event in enumerate(steps):
        if life.state is state:
            break
        life.on(event, float(now))
    assert life.state is state
    return life


def record_of(actions: Actions) -> Record:
    (settle,) = [action for action in actions if isinstance(action, e.Settle)]
    return settle.record


def error_of(actions: Actions) -> RequestError:
    (fail,) = [action for action in actions if isinstance(action, e.Fail)]
    return fail.error


def kinds(actions: Actions) -> list[type[e.Action]]:
    return [type(action) for action in actions]


def test_a_stream_that_goes_well_is_ok_and_knows_its_times() -> None:
    life = life_in(State.STREAMING)
    life.meter.output = 5
    actions = life.on(e.Finished(), 8.0)
    assert kinds(actions) == [e.Free, e.Close, e.Settle]
    record = record_of(actions)
    assert (record.outcome, record.status, record.attempts, record.worker) == (Outcome.OK, 200, 1, "w0")
    assert (record.ttft, record.tpot, record.e2e) == (4.0, 1.0, 8.0)


def test_a_whole_answer_is_delivered_and_has_no_ttft() -> None:
    life = life_in(State.DISPATCHED, stream=False)
    life.on(e.Answered(200), 4.0)
    actions = life.on(e.Finished(), 5.0)
    assert kinds(actions) == [e.Free, e.Deliver, e.Settle]
    assert record_of(actions).outcome is Outcome.OK
    assert record_of(actions).ttft is None


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, Outcome.OK), (400, Outcome.CLIENT_ERROR), (404, Outcome.CLIENT_ERROR), (504, Outcome.TIMEOUT)],
)
def test_the_workers_own_answer_decides_the_outcome(status: int, outcome: Outcome) -> None:
    life = life_in(State.DISPATCHED)
    assert life.on(e.Answered(status), 4.0) == ()
    record = record_of(life.on(e.Finished(), 5.0))
    assert (record.outcome, record.status) == (outcome, status)


@pytest.mark.parametrize("state", [State.RECEIVED, State.AUTHENTICATED, State.ADMITTED, State.QUEUED])
def test_a_refusal_before_dispatch_is_answered_and_settled(state: State) -> None:
    actions = life_in(state).on(e.Refused(FULL), 9.0)
    assert error_of(actions) is FULL
    record = record_of(actions)
    assert (record.outcome, record.status, record.code) == (Outcome.SHED, 503, Code.QUEUE_FULL)
    assert (e.Withdraw in kinds(actions)) == (state is State.QUEUED)


@pytest.mark.parametrize(
    ("state", "first"),
    [
        (State.RECEIVED, []),
        (State.QUEUED, [e.Withdraw]),
        (State.DISPATCHED, [e.Drop, e.Free]),
        (State.STREAMING, [e.Drop, e.Free]),
    ],
)
def test_a_client_that_leaves_frees_what_its_request_held(state: State, first: list[type[e.Action]]) -> None:
    actions = life_in(state).on(e.ClientGone(), 9.0)
    assert kinds(actions) == [*first, e.Settle]
    assert (record_of(actions).outcome, record_of(actions).status) == (Outcome.CANCELLED, 499)


@pytest.mark.parametrize(
    ("state", "code", "outcome"),
    [
        (State.QUEUED, Code.HELD_TIMEOUT, Outcome.TIMEOUT),
        (State.DISPATCHED, Code.UPSTREAM_TIMEOUT, Outcome.TIMEOUT),
        (State.STREAMING, Code.UPSTREAM_TIMEOUT, Outcome.TIMEOUT),
    ],
)
def test_every_wait_has_an_end(state: State, code: Code, outcome: Outcome) -> None:
    life = life_in(state)
    assert life.deadline < float("inf")
    actions = life.on(e.Expired(), life.deadline)
    assert (error_of(actions).code, record_of(actions).outcome) == (code, outcome)


def test_the_reason_for_a_long_wait_is_told_apart() -> None:
    held = error_of(life_in(State.QUEUED).on(e.Expired(held=True), 99.0)).message
    crowded = error_of(life_in(State.QUEUED).on(e.Expired(held=False), 99.0)).message
    assert "became ready" in held
    assert "had room" in crowded


def test_streams_and_whole_answers_wait_for_different_things() -> None:
    assert life_in(State.DISPATCHED).deadline == 3.0 + WAITS.first_token_s
    assert life_in(State.DISPATCHED, stream=False).deadline == 3.0 + WAITS.answer_s
    stream = life_in(State.STREAMING)
    assert stream.deadline == 4.0 + WAITS.stall_s
    stream.progress(6.0)
    assert stream.deadline == 6.0 + WAITS.stall_s


def test_a_worker_lost_before_the_first_byte_is_replaced() -> None:
    life = life_in(State.DISPATCHED)
    actions = life.on(e.Lost(), 5.0)
    assert actions == (e.Free("w0", suspect=True), e.Enqueue(again=True))
    assert life.on(e.Assigned("w1"), 6.0) == (e.Send("w1"),)
    life.on(e.Began(), 7.0)
    record = record_of(life.on(e.Finished(), 8.0))
    assert (record.outcome, record.attempts, record.worker, record.sent) == (Outcome.OK, 2, "w1", 6.0)


def test_the_attempts_of_a_request_are_counted() -> None:
    life = life_in(State.DISPATCHED, attempts=2)
    life.on(e.Lost(), 5.0)
    life.on(e.Assigned("w1"), 6.0)
    actions = life.on(e.Lost(), 7.0)
    assert error_of(actions).code is Code.UPSTREAM_ERROR
    assert record_of(actions).outcome is Outcome.UPSTREAM_ERROR


def test_a_spent_budget_ends_retries_for_everybody() -> None:
    actions = life_in(State.DISPATCHED, retries=0).on(e.Lost(), 5.0)
    assert error_of(actions).code is Code.UPSTREAM_ERROR


def test_a_draining_worker_costs_no_attempt_and_no_budget() -> None:
    life = life_in(State.DISPATCHED, attempts=1, retries=0)
    for attempt in range(5):
        actions = life.on(e.Answered(503), 4.0 + attempt)
        assert actions == (e.Drop(), e.Free("w0", suspect=True), e.Enqueue(again=True))
        life.on(e.Assigned("w0"), 4.5 + attempt)
    life.on(e.Began(), 20.0)
    assert record_of(life.on(e.Finished(), 21.0)).attempts == 1


def test_refusals_of_workers_do_not_prolong_the_wait() -> None:
    life = life_in(State.QUEUED)
    limit = life.deadline
    life.on(e.Assigned("w0"), 5.0)
    life.on(e.Answered(503), 6.0)
    assert life.deadline == limit


def test_a_failed_engine_is_asked_once_more_elsewhere() -> None:
    life = life_in(State.DISPATCHED)
    assert life.on(e.Answered(500), 5.0) == (e.Drop(), e.Free("w0"), e.Enqueue(again=True))
    life.on(e.Assigned("w1"), 6.0)
    assert life.on(e.Answered(500), 7.0) == ()
    actions = life.on(e.Finished(), 8.0)
    assert kinds(actions) == [e.Free, e.Deliver, e.Settle]
    assert record_of(actions).outcome is Outcome.UPSTREAM_ERROR


def test_a_worker_lost_after_the_first_byte_ends_the_stream_with_an_error_event() -> None:
    actions = life_in(State.STREAMING).on(e.Lost(), 9.0)
    assert kinds(actions) == [e.Free, e.Fail, e.Settle]
    assert error_of(actions).code is Code.STREAM_LOST
    record = record_of(actions)
    assert (record.outcome, record.status) == (Outcome.STREAM_ERROR, 200)


def test_an_error_event_before_the_first_byte_is_retried() -> None:
    life = life_in(State.DISPATCHED)
    assert life.on(e.Failed(), 5.0) == (e.Drop(), e.Free("w0"), e.Enqueue(again=True))


def test_an_error_event_of_the_worker_is_passed_on_and_counted() -> None:
    life = life_in(State.STREAMING)
    assert life.on(e.Failed(), 5.0) == ()
    actions = life.on(e.Finished(), 6.0)
    assert kinds(actions) == [e.Free, e.Close, e.Settle]
    assert record_of(actions).outcome is Outcome.STREAM_ERROR


def test_a_gateway_that_stops_cuts_a_stream_with_an_error_event() -> None:
    stop = RequestError(Code.DRAINING, "stopping", retry_after=1.0)
    actions = life_in(State.STREAMING).on(e.Refused(stop), 9.0)
    assert kinds(actions) == [e.Drop, e.Free, e.Fail, e.Settle]
    assert record_of(actions).outcome is Outcome.STREAM_ERROR


def test_who_waits_for_its_tenants_counters_waits_no_longer_than_the_queue_would_hold_it() -> None:
    life = life_in(State.ADMITTED)
    assert life.deadline < float("inf")
    actions = life.on(e.Expired(), life.deadline)
    assert kinds(actions) == [e.Fail, e.Settle]
    assert record_of(actions).code is Code.HELD_TIMEOUT


CUTS = st.sampled_from([None, None, CutReason.FOREIGN])
EVENTS = st.one_of(
    st.just(e.Queued()),
    st.sampled_from(["w0", "w1"]).map(e.Assigned),
    st.sampled_from([200, 400, 500, 502, 503, 504]).map(e.Answered),
    st.just(e.Began()),
    st.just(e.Finished()),
    st.builds(e.Lost, st.booleans(), st.booleans(), st.sampled_from(ResumeReason), CUTS),
    st.just(e.Failed()),
    st.just(e.ClientGone()),
    st.builds(e.Expired, st.booleans(), CUTS),
    st.just(e.Refused(FULL)),
    st.builds(e.Admitted, st.builds(terms, stream=st.booleans()), st.builds(RetryBudget, st.just(0.2))),
    st.just(e.Authenticated("team")),
)
ON = e.Lost(cut=None)
LIKELY = st.one_of(EVENTS, st.sampled_from([e.Queued(), e.Assigned("w0"), e.Began(), e.Lost(), e.Answered(503), ON]))


@given(st.lists(LIKELY, max_size=40))
def test_whatever_happens_each_slot_is_freed_once_and_the_end_is_one(history: list[e.Event]) -> None:
    life = life_in(State.ADMITTED)
    holding: str | None = None
    settled = 0
    for now, event in enumerate(history, start=10):
        for action in life.on(event, float(now)):
            assert not settled
            match action:
                case e.Send(worker):
                    assert holding is None
                    holding = worker
                case e.Free(worker, _):
                    assert holding == worker
                    holding = None
                case e.Settle():
                    settled += 1
                    assert holding is None
        assert (life.state is State.DONE) == bool(settled)
        assert (life.deadline == float("inf")) == (life.state is State.DONE)
    assert settled <= 1


@given(st.lists(LIKELY, max_size=40))
def test_a_request_stands_in_the_queue_exactly_when_it_is_queued(history: list[e.Event]) -> None:
    life, standing = life_in(State.ADMITTED), False
    for now, event in enumerate(history, start=10):
        for action in life.on(event, float(now)):
            if isinstance(action, e.Enqueue):
                assert not standing
                standing = True
            elif isinstance(action, e.Withdraw | e.Send):
                assert standing
                standing = False
        assert standing == life.waiting


@given(st.lists(LIKELY, max_size=40))
def test_an_answer_begins_once_and_after_that_is_never_given_whole_or_begun_anew(history: list[e.Event]) -> None:
    life, begun = life_in(State.ADMITTED), False
    for now, event in enumerate(history, start=10):
        before = life.state
        actions = life.on(event, float(now))
        assert not (begun and e.Deliver in kinds(actions))
        assert not (begun and any(isinstance(action, e.Enqueue) and not action.resume for action in actions))
        assert begun or e.Resumed not in kinds(actions)
        begun = begun or (before is State.DISPATCHED and isinstance(event, e.Began))


@given(st.lists(LIKELY, max_size=40))
def test_the_phases_of_whatever_happened_sum_to_the_whole(history: list[e.Event]) -> None:
    life = life_in(State.ADMITTED)
    for now, event in enumerate(history, start=10):
        for action in life.on(event, float(now)):
            if isinstance(action, e.Settle) and action.record.sent is not None:
                assert sum(phases(action.record).values()) == pytest.approx(action.record.e2e)


def resumed_life(told: e.Lost = ON) -> Life:
    """A stream that began at 4, lost its worker at 6, and goes on since 9."""
    life = life_in(State.STREAMING)
    life.progress(5.0)
    assert kinds(life.on(told, 6.0)) == [e.Free, e.Enqueue]
    assert life.state is State.RESUMING
    assert life.on(e.Assigned("w1"), 7.0) == (e.Send("w1"),)
    assert life.on(e.Answered(200), 8.0) == ()
    assert life.on(e.Began(), 9.0) == (e.Resumed(told.reason, 4.0),)
    return life


def test_a_stream_that_went_on_elsewhere_is_one_good_stream() -> None:
    life = resumed_life()
    life.meter.output = 7
    actions = life.on(e.Finished(), 12.0)
    assert kinds(actions) == [e.Free, e.Close, e.Settle]
    record = record_of(actions)
    assert (record.outcome, record.status, record.attempts, record.resumed) == (Outcome.OK, 200, 1, 1)
    assert (record.ttft, record.tpot, record.e2e, record.worker) == (4.0, 8.0 / 6, 12.0, "w1")
    assert record.cut is None


def test_the_time_of_all_its_workers_is_told_and_the_gap_is_a_wait() -> None:
    spent = phases(record_of(resumed_life().on(e.Finished(), 12.0)))
    assert (spent[Phase.PREFILL], spent[Phase.DECODE]) == (1.0 + 2.0, 2.0 + 3.0)
    assert spent[Phase.QUEUE] == 1.0 + 1.0
    assert sum(spent.values()) == 12.0


def test_losses_are_counted_until_they_are_too_many() -> None:
    life = life_in(State.STREAMING)
    for _ in range(RESUMES):
        assert e.Enqueue(again=True, resume=True) in life.on(ON, 6.0)
        life.on(e.Assigned("w1"), 7.0)
        life.on(e.Began(), 8.0)
    actions = life.on(ON, 9.0)
    assert error_of(actions).code is Code.STREAM_LOST
    assert (record_of(actions).outcome, record_of(actions).cut) == (Outcome.STREAM_ERROR, CutReason.ATTEMPTS)


def test_a_move_is_not_counted_but_has_a_limit_in_time() -> None:
    moved = e.Lost(harmless=True, suspect=False, reason=ResumeReason.EVACUATE, cut=None)
    life = life_in(State.STREAMING)
    for _ in range(RESUMES + 5):
        assert e.Free("w0") in life.on(moved, 6.0)
        life.on(e.Assigned("w0"), 7.0)
        life.on(e.Began(), 8.0)
    life.on(moved, 9.0)
    limit = life.deadline
    life.on(e.Assigned("w0"), 10.0)
    life.on(e.Answered(503), 11.0)
    assert life.deadline == limit == 9.0 + WAITS.resume_s
    actions = life.on(e.Expired(), limit)
    assert kinds(actions) == [e.Withdraw, e.Fail, e.Settle]
    assert (error_of(actions).code, record_of(actions).cut) == (Code.STREAM_LOST, CutReason.DEADLINE)


@pytest.mark.parametrize("status", [400, 413, 500, 503])
def test_a_worker_that_does_not_take_a_stream_over_is_passed_over(status: int) -> None:
    life = life_in(State.STREAMING)
    life.on(ON, 6.0)
    life.on(e.Assigned("w1"), 7.0)
    actions = life.on(e.Answered(status), 8.0)
    assert kinds(actions) == [e.Drop, e.Free, e.Enqueue]
    assert life.state is State.RESUMING


def test_a_silent_stream_goes_on_elsewhere_if_it_can() -> None:
    actions = life_in(State.STREAMING).on(e.Expired(cut=None), 9.0)
    assert actions == (e.Drop(), e.Free("w0", suspect=True), e.Enqueue(again=True, resume=True))
    actions = life_in(State.STREAMING).on(e.Expired(), 9.0)
    assert error_of(actions).code is Code.UPSTREAM_TIMEOUT


def test_a_spent_retry_budget_does_not_break_streams() -> None:
    assert e.Enqueue(again=True, resume=True) in life_in(State.STREAMING, retries=0).on(ON, 6.0)


def test_a_client_that_leaves_while_its_stream_looks_for_a_worker_is_cancelled() -> None:
    life = life_in(State.STREAMING)
    life.on(ON, 6.0)
    actions = life.on(e.ClientGone(), 7.0)
    assert kinds(actions) == [e.Withdraw, e.Settle]
    assert record_of(actions).outcome is Outcome.CANCELLED


def test_a_gateway_that_stops_cuts_a_stream_that_looks_for_a_worker() -> None:
    life = life_in(State.STREAMING)
    life.on(ON, 6.0)
    actions = life.on(e.Refused(RequestError(Code.DRAINING, "stopping", retry_after=1.0)), 7.0)
    assert kinds(actions) == [e.Withdraw, e.Fail, e.Settle]
    assert record_of(actions).outcome is Outcome.STREAM_ERROR


def test_the_second_byte_of_a_dead_request_changes_nothing() -> None:
    life = life_in(State.STREAMING)
    life.on(e.ClientGone(), 9.0)
    assert life.on(e.Finished(), 10.0) == ()
    assert life.on(e.Lost(), 10.0) == ()
