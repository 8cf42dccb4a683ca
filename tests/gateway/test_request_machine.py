"""The request machine alone: every state against every event that matters there, and laws over random histories."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_core.errors import Code, RequestError
from paceline_core.registry import Outcome, Phase, RequestClass
from paceline_core.registry.enums import AbortReason, ResumeReason
from paceline_gateway.request import events as e
from paceline_gateway.request.attempts import RESUMES, RetryBudget
from paceline_gateway.request.machine import Actions, RequestMachine
from paceline_gateway.request.slo import phases
from paceline_gateway.request.types import RequestRecord, RequestState, RequestTerms, Timeouts

WAITS = Timeouts(first_token_s=10.0, stream_idle_timeout_s=5.0, answer_s=60.0)
FULL = RequestError(Code.QUEUE_FULL, "full", retry_after=3.0)


def terms(*, stream: bool = True, attempts: int = 2, fallbacks: bool = False) -> RequestTerms:
    return RequestTerms("default/chat", RequestClass.INTERACTIVE, stream, 100, 30.0, attempts, fallbacks=fallbacks)


def life_in(
    state: RequestState, *, stream: bool = True, attempts: int = 2, retries: int = 10, fallbacks: bool = False
) -> RequestMachine:
    """A life driven to a state by the events that lead there; times 0, 1, 2 ... on the way."""
    life = RequestMachine(0.0, WAITS)
    steps: list[e.Event] = [
        e.Authenticated("team"),
        e.Admitted(terms(stream=stream, attempts=attempts, fallbacks=fallbacks), RetryBudget(0.0, min_retries=retries)),
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


def record_of(actions: Actions) -> RequestRecord:
    (settle,) = [action for action in actions if isinstance(action, e.Settle)]
    return settle.record


def error_of(actions: Actions) -> RequestError:
    (fail,) = [action for action in actions if isinstance(action, e.Fail)]
    return fail.error


def kinds(actions: Actions) -> list[type[e.Action]]:
    return [type(action) for action in actions]


def test_a_stream_that_goes_well_is_ok_and_knows_its_times() -> None:
    life = life_in(RequestState.STREAMING)
    life.meter.output = 5
    actions = life.on(e.Finished(), 8.0)
    assert kinds(actions) == [e.ReleaseSlot, e.Close, e.Settle]
    record = record_of(actions)
    assert (record.outcome, record.status, record.attempts, record.worker) == (Outcome.OK, 200, 1, "w0")
    assert (record.ttft, record.tpot, record.e2e) == (4.0, 1.0, 8.0)


def test_a_whole_answer_is_delivered_and_has_no_ttft() -> None:
    life = life_in(RequestState.DISPATCHED, stream=False)
    life.on(e.Answered(200), 4.0)
    actions = life.on(e.Finished(), 5.0)
    assert kinds(actions) == [e.ReleaseSlot, e.SendResponse, e.Settle]
    assert record_of(actions).outcome is Outcome.OK
    assert record_of(actions).ttft is None


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(200, Outcome.OK), (400, Outcome.CLIENT_ERROR), (404, Outcome.CLIENT_ERROR), (504, Outcome.TIMEOUT)],
)
def test_the_workers_own_answer_decides_the_outcome(status: int, outcome: Outcome) -> None:
    life = life_in(RequestState.DISPATCHED)
    assert life.on(e.Answered(status), 4.0) == ()
    record = record_of(life.on(e.Finished(), 5.0))
    assert (record.outcome, record.status) == (outcome, status)


@pytest.mark.parametrize(
    "state", [RequestState.RECEIVED, RequestState.AUTHENTICATED, RequestState.ADMITTED, RequestState.QUEUED]
)
def test_a_refusal_before_dispatch_is_answered_and_settled(state: RequestState) -> None:
    actions = life_in(state).on(e.Refused(FULL), 9.0)
    assert error_of(actions) is FULL
    record = record_of(actions)
    assert (record.outcome, record.status, record.code) == (Outcome.SHED, 503, Code.QUEUE_FULL)
    assert (e.Dequeue in kinds(actions)) == (state is RequestState.QUEUED)


@pytest.mark.parametrize(
    ("state", "first"),
    [
        (RequestState.RECEIVED, []),
        (RequestState.QUEUED, [e.Dequeue]),
        (RequestState.DISPATCHED, [e.AbortUpstream, e.ReleaseSlot]),
        (RequestState.STREAMING, [e.AbortUpstream, e.ReleaseSlot]),
    ],
)
def test_a_client_that_leaves_frees_what_its_request_held(state: RequestState, first: list[type[e.Action]]) -> None:
    actions = life_in(state).on(e.ClientGone(), 9.0)
    assert kinds(actions) == [*first, e.Settle]
    assert (record_of(actions).outcome, record_of(actions).status) == (Outcome.CANCELLED, 499)


@pytest.mark.parametrize(
    ("state", "code", "outcome"),
    [
        (RequestState.QUEUED, Code.HELD_TIMEOUT, Outcome.TIMEOUT),
        (RequestState.DISPATCHED, Code.UPSTREAM_TIMEOUT, Outcome.TIMEOUT),
        (RequestState.STREAMING, Code.UPSTREAM_TIMEOUT, Outcome.TIMEOUT),
    ],
)
def test_every_wait_has_an_end(state: RequestState, code: Code, outcome: Outcome) -> None:
    life = life_in(state)
    assert life.deadline < float("inf")
    actions = life.on(e.Expired(), life.deadline)
    assert (error_of(actions).code, record_of(actions).outcome) == (code, outcome)


def test_the_reasons_for_a_long_wait_are_distinct() -> None:
    held = error_of(life_in(RequestState.QUEUED).on(e.Expired(held=True), 99.0)).message
    crowded = error_of(life_in(RequestState.QUEUED).on(e.Expired(held=False), 99.0)).message
    assert "became ready" in held
    assert "had room" in crowded


def test_streams_and_whole_answers_wait_for_different_things() -> None:
    assert life_in(RequestState.DISPATCHED).deadline == 3.0 + WAITS.first_token_s
    assert life_in(RequestState.DISPATCHED, stream=False).deadline == 3.0 + WAITS.answer_s
    stream = life_in(RequestState.STREAMING)
    assert stream.deadline == 4.0 + WAITS.stream_idle_timeout_s
    stream.heard = 6.0
    assert stream.deadline == 6.0 + WAITS.stream_idle_timeout_s


def test_a_worker_lost_before_the_first_byte_is_replaced() -> None:
    life = life_in(RequestState.DISPATCHED)
    actions = life.on(e.Lost(), 5.0)
    assert actions == (e.ReleaseSlot("w0", suspect=True), e.Enqueue(again=True))
    assert life.on(e.Assigned("w1"), 6.0) == (e.Send("w1"),)
    life.on(e.Began(), 7.0)
    record = record_of(life.on(e.Finished(), 8.0))
    assert (record.outcome, record.attempts, record.worker, record.sent) == (Outcome.OK, 2, "w1", 6.0)


def test_the_attempts_of_a_request_are_counted() -> None:
    life = life_in(RequestState.DISPATCHED, attempts=2)
    life.on(e.Lost(), 5.0)
    life.on(e.Assigned("w1"), 6.0)
    actions = life.on(e.Lost(), 7.0)
    assert error_of(actions).code is Code.UPSTREAM_ERROR
    assert record_of(actions).outcome is Outcome.UPSTREAM_ERROR


def test_a_spent_budget_ends_retries_for_everybody() -> None:
    actions = life_in(RequestState.DISPATCHED, retries=0).on(e.Lost(), 5.0)
    assert error_of(actions).code is Code.UPSTREAM_ERROR


def test_a_draining_worker_costs_no_attempt_and_no_budget() -> None:
    life = life_in(RequestState.DISPATCHED, attempts=1, retries=0)
    for attempt in range(5):
        actions = life.on(e.Answered(503), 4.0 + attempt)
        assert actions == (e.AbortUpstream(), e.ReleaseSlot("w0", suspect=True), e.Enqueue(again=True))
        life.on(e.Assigned("w0"), 4.5 + attempt)
    life.on(e.Began(), 20.0)
    assert record_of(life.on(e.Finished(), 21.0)).attempts == 1


def test_refusals_of_workers_do_not_prolong_the_wait() -> None:
    life = life_in(RequestState.QUEUED)
    limit = life.deadline
    life.on(e.Assigned("w0"), 5.0)
    life.on(e.Answered(503), 6.0)
    assert life.deadline == limit


def test_a_failed_engine_is_asked_once_more_elsewhere() -> None:
    life = life_in(RequestState.DISPATCHED)
    assert life.on(e.Answered(500), 5.0) == (e.AbortUpstream(), e.ReleaseSlot("w0"), e.Enqueue(again=True))
    life.on(e.Assigned("w1"), 6.0)
    assert life.on(e.Answered(500), 7.0) == ()
    actions = life.on(e.Finished(), 8.0)
    assert kinds(actions) == [e.ReleaseSlot, e.SendResponse, e.Settle]
    assert record_of(actions).outcome is Outcome.UPSTREAM_ERROR


def test_a_worker_lost_after_the_first_byte_ends_the_stream_with_an_error_event() -> None:
    actions = life_in(RequestState.STREAMING).on(e.Lost(), 9.0)
    assert kinds(actions) == [e.ReleaseSlot, e.Fail, e.Settle]
    assert error_of(actions).code is Code.STREAM_LOST
    record = record_of(actions)
    assert (record.outcome, record.status) == (Outcome.STREAM_ERROR, 200)


def test_an_error_event_before_the_first_byte_is_retried() -> None:
    life = life_in(RequestState.DISPATCHED)
    assert life.on(e.AttemptFailed(), 5.0) == (e.AbortUpstream(), e.ReleaseSlot("w0"), e.Enqueue(again=True))


def test_a_request_that_its_client_got_wrong_is_neither_retried_nor_counted_as_a_failure() -> None:
    wrong = e.AttemptFailed(Code.INVALID_REQUEST)
    assert life_in(RequestState.DISPATCHED).on(wrong, 5.0) == ()
    life = life_in(RequestState.STREAMING)
    assert life.on(wrong, 5.0) == ()
    record = record_of(life.on(e.Finished(), 6.0))
    assert (record.outcome, record.code) == (Outcome.CLIENT_ERROR, Code.INVALID_REQUEST)


def test_an_error_event_of_the_worker_is_passed_on_and_counted() -> None:
    life = life_in(RequestState.STREAMING)
    assert life.on(e.AttemptFailed(), 5.0) == ()
    actions = life.on(e.Finished(), 6.0)
    assert kinds(actions) == [e.ReleaseSlot, e.Close, e.Settle]
    assert record_of(actions).outcome is Outcome.STREAM_ERROR


def test_a_gateway_that_stops_cuts_a_stream_with_an_error_event() -> None:
    stop = RequestError(Code.DRAINING, "stopping", retry_after=1.0)
    actions = life_in(RequestState.STREAMING).on(e.Refused(stop), 9.0)
    assert kinds(actions) == [e.AbortUpstream, e.ReleaseSlot, e.Fail, e.Settle]
    assert record_of(actions).outcome is Outcome.STREAM_ERROR


def test_who_waits_for_its_tenants_counters_waits_no_longer_than_the_queue_would_hold_it() -> None:
    life = life_in(RequestState.ADMITTED)
    assert life.deadline < float("inf")
    actions = life.on(e.Expired(), life.deadline)
    assert kinds(actions) == [e.Fail, e.Settle]
    assert record_of(actions).code is Code.HELD_TIMEOUT


def diverted(*, hold_s: float = 30.0, retries: int = 10, fallbacks: bool = False) -> e.Diverted:
    """To a spare, whose retries are its own."""
    spare = RequestTerms("default/spare", RequestClass.INTERACTIVE, True, 100, hold_s, 2, fallbacks=fallbacks)
    return e.Diverted(spare, RetryBudget(0.0, min_retries=retries))


def test_a_request_that_waits_goes_on_to_another_destination_and_is_its_request() -> None:
    life = life_in(RequestState.QUEUED, fallbacks=True)
    assert life.on(diverted(), 10.0) == (e.Dequeue(), e.SwitchDestination(), e.Enqueue())
    assert life.on(e.Assigned("s0"), 11.0) == (e.Send("s0"),)
    life.on(e.Began(), 12.0)
    record = record_of(life.on(e.Finished(), 13.0))
    assert record.terms is not None
    assert (record.terms.service, record.worker, record.diverted, record.outcome) == (
        "default/spare", "s0", 1, Outcome.OK,
    )  # fmt: skip
    assert (record.queued, record.sent) == (2.0, 11.0)


def test_who_finds_no_room_to_wait_in_may_wait_elsewhere() -> None:
    life = life_in(RequestState.ADMITTED, fallbacks=True)
    assert life.on(diverted(hold_s=5.0), 7.0) == (e.SwitchDestination(), e.Enqueue())
    assert (life.state, life.deadline) == (RequestState.QUEUED, 12.0)


@pytest.mark.parametrize(("hold_s", "deadline"), [(5.0, 15.0), (100.0, 32.0)])
def test_going_on_never_prolongs_the_wait(hold_s: float, deadline: float) -> None:
    life = life_in(RequestState.QUEUED, fallbacks=True)
    life.on(diverted(hold_s=hold_s), 10.0)
    assert life.deadline == deadline


@pytest.mark.parametrize(
    "state",
    [
        RequestState.RECEIVED,
        RequestState.AUTHENTICATED,
        RequestState.DISPATCHED,
        RequestState.STREAMING,
        RequestState.DONE,
    ],
)
def test_nobody_else_takes_what_does_not_wait_for_its_first_byte(state: RequestState) -> None:
    life = life_in(RequestState.STREAMING if state is RequestState.DONE else state, fallbacks=True)
    if state is RequestState.DONE:
        life.on(e.ClientGone(), 5.0)
    assert life.on(diverted(), 9.0) == ()
    assert life.state is state


def test_a_stream_that_has_begun_is_for_its_own_service_alone() -> None:
    life = life_in(RequestState.STREAMING, fallbacks=True)
    actions = life.on(ON, 6.0)
    assert e.TryFallback not in kinds(actions)
    assert life.on(diverted(), 7.0) == ()
    assert life.state is RequestState.RESUMING


@cases(("attempts", "last"), [(3, False), (2, True)])
@cases("event", [e.Lost(), e.Answered(500), e.Answered(429), e.AttemptFailed()])
def test_after_a_failure_another_destination_is_looked_for_and_the_last_attempt_is_for_it(
    event: e.Event, attempts: int, last: bool
) -> None:
    actions = life_in(RequestState.DISPATCHED, attempts=attempts, fallbacks=True).on(event, 5.0)
    assert actions[-2:] == (e.Enqueue(again=True), e.TryFallback(last))


def test_a_worker_that_takes_nothing_costs_no_attempt_and_its_service_is_asked_first() -> None:
    actions = life_in(RequestState.DISPATCHED, attempts=1, retries=0, fallbacks=True).on(e.Answered(503), 5.0)
    assert actions[-2:] == (e.Enqueue(again=True), e.TryFallback(last=False))


@pytest.mark.parametrize(("attempts", "retries"), [(1, 10), (3, 0)])
def test_going_on_after_a_failure_is_a_retry_and_needs_what_retries_need(attempts: int, retries: int) -> None:
    life = life_in(RequestState.DISPATCHED, attempts=attempts, retries=retries, fallbacks=True)
    actions = life.on(e.Lost(), 5.0)
    assert (kinds(actions), error_of(actions).code) == ([e.ReleaseSlot, e.Fail, e.Settle], Code.UPSTREAM_ERROR)


def test_attempts_are_those_of_the_request_wherever_they_were_made() -> None:
    life = life_in(RequestState.DISPATCHED, attempts=2, fallbacks=True)
    life.on(e.Lost(), 5.0)
    life.on(diverted(fallbacks=True), 5.0)
    life.on(e.Assigned("s0"), 6.0)
    record = record_of(life.on(e.Lost(), 7.0))
    assert (record.attempts, record.outcome) == (2, Outcome.UPSTREAM_ERROR)


def test_without_another_destination_a_workers_429_is_the_answer() -> None:
    life = life_in(RequestState.DISPATCHED)
    assert life.on(e.Answered(429), 5.0) == ()
    assert kinds(life.on(e.Finished(), 6.0)) == [e.ReleaseSlot, e.SendResponse, e.Settle]


CUTS = st.sampled_from([None, None, AbortReason.UNSUPPORTED_RUNTIME])
EVENTS = st.one_of(
    st.just(e.Queued()),
    st.sampled_from(["w0", "w1"]).map(e.Assigned),
    st.sampled_from([200, 400, 500, 502, 503, 504]).map(e.Answered),
    st.just(e.Began()),
    st.just(e.Finished()),
    st.builds(e.Lost, st.booleans(), st.booleans(), st.sampled_from(ResumeReason), CUTS),
    st.just(e.AttemptFailed()),
    st.just(e.ClientGone()),
    st.builds(e.Expired, st.booleans(), CUTS),
    st.just(e.Refused(FULL)),
    st.builds(e.Admitted, st.builds(terms, stream=st.booleans()), st.builds(RetryBudget, st.just(0.2))),
    st.builds(diverted, hold_s=st.sampled_from([1.0, 90.0]), fallbacks=st.booleans()),
    st.just(e.Authenticated("team")),
)
ON = e.Lost(abort=None)
LIKELY = st.one_of(
    EVENTS,
    st.sampled_from([e.Queued(), e.Assigned("w0"), e.Began(), e.Lost(), e.Answered(503), ON]),
    st.builds(diverted, fallbacks=st.just(True)),
)


@given(st.lists(LIKELY, max_size=40))
def test_whatever_happens_each_slot_is_freed_once_and_the_end_is_one(history: list[e.Event]) -> None:
    life = life_in(RequestState.ADMITTED, fallbacks=True)
    holding: str | None = None
    settled = 0
    for now, event in enumerate(history, start=10):
        for action in life.on(event, float(now)):
            assert not settled
            match action:
                case e.Send(worker):
                    assert holding is None
                    holding = worker
                case e.ReleaseSlot(worker, _):
                    assert holding == worker
                    holding = None
                case e.Settle():
                    settled += 1
                    assert holding is None
        assert (life.state is RequestState.DONE) == bool(settled)
        assert (life.deadline == float("inf")) == (life.state is RequestState.DONE)
    assert settled <= 1


@given(st.lists(LIKELY, max_size=40))
def test_every_request_that_ends_has_had_one_answer_unless_its_client_left(history: list[e.Event]) -> None:
    life, answers = life_in(RequestState.ADMITTED, fallbacks=True), 0
    for now, event in enumerate(history, start=10):
        for action in life.on(event, float(now)):
            answers += isinstance(action, e.SendResponse | e.Close | e.Fail)
            if isinstance(action, e.Settle):
                assert answers == (action.record.outcome is not Outcome.CANCELLED)
    assert answers <= 1


@given(st.lists(LIKELY, max_size=40))
def test_a_request_stands_in_the_queue_exactly_when_it_is_queued(history: list[e.Event]) -> None:
    life, standing = life_in(RequestState.ADMITTED, fallbacks=True), False
    for now, event in enumerate(history, start=10):
        for action in life.on(event, float(now)):
            if isinstance(action, e.Enqueue):
                assert not standing
                standing = True
            elif isinstance(action, e.Dequeue | e.Send):
                assert standing
                standing = False
        assert standing == life.waiting


@given(st.lists(LIKELY, max_size=40))
def test_a_request_moves_only_between_two_queues_and_before_its_first_byte(history: list[e.Event]) -> None:
    """Whatever is asked of a destination ends there: a request is never at two of them, and never at none."""
    life = life_in(RequestState.ADMITTED, fallbacks=True)
    place, standing, moves = 0, -1, 0
    for now, event in enumerate(history, start=10):
        limit, waited = life.deadline, life.state is RequestState.QUEUED
        for action in life.on(event, float(now)):
            match action:
                case e.SwitchDestination():
                    assert standing == -1
                    assert not life.begun
                    assert not waited or life.deadline <= limit
                    place, moves = place + 1, moves + 1
                case e.Enqueue():
                    assert standing == -1
                    standing = place
                case e.Dequeue() | e.Send():
                    assert standing == place
                    standing = -1
                case e.TryFallback():
                    assert standing == place
                    assert not life.begun
                case e.Settle(record):
                    assert standing == -1
                    assert record.diverted == moves


@given(st.lists(LIKELY, max_size=40))
def test_an_answer_begins_once_and_after_that_is_never_given_whole_or_begun_anew(history: list[e.Event]) -> None:
    life, begun = life_in(RequestState.ADMITTED, fallbacks=True), False
    for now, event in enumerate(history, start=10):
        before = life.state
        actions = life.on(event, float(now))
        assert not (begun and e.SendResponse in kinds(actions))
        assert not (begun and any(isinstance(action, e.Enqueue) and not action.resume for action in actions))
        assert not (begun and {e.SwitchDestination, e.TryFallback} & set(kinds(actions)))
        assert begun or e.Resumed not in kinds(actions)
        begun = begun or (before is RequestState.DISPATCHED and isinstance(event, e.Began))


@given(st.lists(LIKELY, max_size=40))
def test_the_phases_of_whatever_happened_sum_to_the_whole(history: list[e.Event]) -> None:
    life = life_in(RequestState.ADMITTED, fallbacks=True)
    for now, event in enumerate(history, start=10):
        for action in life.on(event, float(now)):
            if isinstance(action, e.Settle) and action.record.sent is not None:
                assert sum(phases(action.record).values()) == pytest.approx(action.record.e2e)


def resumed_life(told: e.Lost = ON) -> RequestMachine:
    """A stream that began at 4, lost its worker at 6, and goes on since 9."""
    life = life_in(RequestState.STREAMING)
    life.heard = 5.0
    assert kinds(life.on(told, 6.0)) == [e.ReleaseSlot, e.Enqueue]
    assert life.state is RequestState.RESUMING
    assert life.on(e.Assigned("w1"), 7.0) == (e.Send("w1"),)
    assert life.on(e.Answered(200), 8.0) == ()
    assert life.on(e.Began(), 9.0) == (e.Resumed(told.reason, 4.0),)
    return life


def test_a_stream_that_went_on_elsewhere_is_one_good_stream() -> None:
    life = resumed_life()
    life.meter.output = 7
    actions = life.on(e.Finished(), 12.0)
    assert kinds(actions) == [e.ReleaseSlot, e.Close, e.Settle]
    record = record_of(actions)
    assert (record.outcome, record.status, record.attempts, record.resumed) == (Outcome.OK, 200, 1, 1)
    assert (record.ttft, record.tpot, record.e2e, record.worker) == (4.0, 8.0 / 6, 12.0, "w1")
    assert record.abort is None


def test_the_time_of_all_its_workers_is_recorded_and_the_gap_is_a_wait() -> None:
    spent = phases(record_of(resumed_life().on(e.Finished(), 12.0)))
    assert (spent[Phase.PREFILL], spent[Phase.DECODE]) == (1.0 + 2.0, 2.0 + 3.0)
    assert spent[Phase.QUEUE] == 1.0 + 1.0
    assert sum(spent.values()) == 12.0


def test_losses_are_counted_until_they_are_too_many() -> None:
    life = life_in(RequestState.STREAMING)
    for _ in range(RESUMES):
        assert e.Enqueue(again=True, resume=True) in life.on(ON, 6.0)
        life.on(e.Assigned("w1"), 7.0)
        life.on(e.Began(), 8.0)
    actions = life.on(ON, 9.0)
    assert error_of(actions).code is Code.STREAM_LOST
    assert (record_of(actions).outcome, record_of(actions).abort) == (Outcome.STREAM_ERROR, AbortReason.MAX_ATTEMPTS)


def test_a_move_is_not_counted_but_has_a_limit_in_time() -> None:
    moved = e.Lost(harmless=True, suspect=False, reason=ResumeReason.EVACUATE, abort=None)
    life = life_in(RequestState.STREAMING)
    for _ in range(RESUMES + 5):
        assert e.ReleaseSlot("w0") in life.on(moved, 6.0)
        life.on(e.Assigned("w0"), 7.0)
        life.on(e.Began(), 8.0)
    life.on(moved, 9.0)
    limit = life.deadline
    life.on(e.Assigned("w0"), 10.0)
    life.on(e.Answered(503), 11.0)
    assert life.deadline == limit == 9.0 + WAITS.resume_s
    actions = life.on(e.Expired(), limit)
    assert kinds(actions) == [e.Dequeue, e.Fail, e.Settle]
    assert (error_of(actions).code, record_of(actions).abort) == (Code.STREAM_LOST, AbortReason.DEADLINE_EXCEEDED)


@pytest.mark.parametrize("status", [400, 413, 500, 503])
def test_a_worker_that_does_not_take_a_stream_over_is_passed_over(status: int) -> None:
    life = life_in(RequestState.STREAMING)
    life.on(ON, 6.0)
    life.on(e.Assigned("w1"), 7.0)
    actions = life.on(e.Answered(status), 8.0)
    assert kinds(actions) == [e.AbortUpstream, e.ReleaseSlot, e.Enqueue]
    assert life.state is RequestState.RESUMING


def test_a_silent_stream_goes_on_elsewhere_if_it_can() -> None:
    actions = life_in(RequestState.STREAMING).on(e.Expired(abort=None), 9.0)
    assert actions == (e.AbortUpstream(), e.ReleaseSlot("w0", suspect=True), e.Enqueue(again=True, resume=True))
    actions = life_in(RequestState.STREAMING).on(e.Expired(), 9.0)
    assert error_of(actions).code is Code.UPSTREAM_TIMEOUT


def test_a_spent_retry_budget_does_not_break_streams() -> None:
    assert e.Enqueue(again=True, resume=True) in life_in(RequestState.STREAMING, retries=0).on(ON, 6.0)


def test_a_client_that_leaves_while_its_stream_looks_for_a_worker_is_cancelled() -> None:
    life = life_in(RequestState.STREAMING)
    life.on(ON, 6.0)
    actions = life.on(e.ClientGone(), 7.0)
    assert kinds(actions) == [e.Dequeue, e.Settle]
    assert record_of(actions).outcome is Outcome.CANCELLED


def test_a_gateway_that_stops_cuts_a_stream_that_looks_for_a_worker() -> None:
    life = life_in(RequestState.STREAMING)
    life.on(ON, 6.0)
    actions = life.on(e.Refused(RequestError(Code.DRAINING, "stopping", retry_after=1.0)), 7.0)
    assert kinds(actions) == [e.Dequeue, e.Fail, e.Settle]
    assert record_of(actions).outcome is Outcome.STREAM_ERROR


def test_the_second_byte_of_a_dead_request_changes_nothing() -> None:
    life = life_in(RequestState.STREAMING)
    life.on(e.ClientGone(), 9.0)
    assert life.on(e.Finished(), 10.0) == ()
    assert life.on(e.Lost(), 10.0) == ()
