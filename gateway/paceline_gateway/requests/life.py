"""A request's life in the gateway: one state machine, `on(event, now) -> actions`.

    RECEIVED -> AUTHENTICATED -> ADMITTED -> QUEUED -> DISPATCHED -> STREAMING -> DONE
                                               ^            |
                                               +--- lost ---+      before the first byte, within attempts and budget

Invariants: every life ends in exactly one Settle; each Send is followed by exactly one Free of the same worker; after
Settle nothing happens. `deadline` is the limit of the current state: whoever drives the machine reports its passing
as Expired. A stream that has begun and loses its worker ends with an error event: `_lost_streaming` is the one place
where resumption will take over. What a client cancels is not counted as anybody's failure.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, ClassVar

from paceline_core.errors import ERRORS, Code, RequestError
from paceline_core.registry.enums import Outcome
from paceline_gateway.requests import events as e
from paceline_gateway.requests.budget import RetryBudget
from paceline_gateway.requests.nouns import Meter, Record, Terms, Waits

_NEVER = float("inf")
Actions = tuple[e.Action, ...]


class State(StrEnum):
    """Where a request is."""

    RECEIVED = "received"
    AUTHENTICATED = "authenticated"
    ADMITTED = "admitted"
    QUEUED = "queued"
    DISPATCHED = "dispatched"
    STREAMING = "streaming"
    DONE = "done"


class Life:
    """One request. `meter` is shared with whoever watches the answer pass."""

    __slots__ = (
        "_attempts",
        "_budget",
        "_error_passed",
        "_first",
        "_queued",
        "_received",
        "_sent",
        "_status",
        "_tenant",
        "_terms",
        "_waits",
        "_worker",
        "deadline",
        "meter",
        "state",
    )

    def __init__(self, received: float, waits: Waits) -> None:
        self.state = State.RECEIVED
        self.deadline = _NEVER
        self.meter = Meter()
        self._received = received
        self._waits = waits
        self._budget: RetryBudget | None = None
        self._terms: Terms | None = None
        self._tenant = ""
        self._worker = ""
        self._attempts = 0
        self._status = 200
        self._error_passed = False
        self._queued: float | None = None
        self._sent: float | None = None
        self._first: float | None = None

    def on(self, event: e.Event, now: float) -> Actions:
        """What to do about it; nothing once the request is done."""
        if self.state is State.DONE:
            return ()
        return self._reactions[type(event)](self, event, now)

    def progress(self, now: float) -> None:
        """More of a stream has come: the silence starts anew. Called for each packet, hence not an event."""
        self.deadline = now + self._waits.stall_s

    def _authenticated(self, event: e.Authenticated, _now: float) -> Actions:
        if self.state is State.RECEIVED:
            self.state, self._tenant = State.AUTHENTICATED, event.tenant
        return ()

    def _admitted(self, event: e.Admitted, now: float) -> Actions:
        if self.state is State.AUTHENTICATED:
            self.state, self._terms, self._budget = State.ADMITTED, event.terms, event.budget
            self.deadline = now + event.terms.hold_s
        return ()

    def _queued_up(self, _: e.Queued, now: float) -> Actions:
        if self.state is not State.ADMITTED or self._terms is None or self._budget is None:
            return ()
        self.state, self._queued = State.QUEUED, now
        self.deadline = now + self._terms.hold_s
        self._budget.request(now)
        return (e.Enqueue(),)

    def _assigned(self, event: e.Assigned, now: float) -> Actions:
        if self.state is not State.QUEUED or self._terms is None:
            return ()
        self.state = State.DISPATCHED
        self._worker, self._sent = event.worker, now
        self._attempts += 1
        self.deadline = now + (self._waits.first_token_s if self._terms.stream else self._waits.answer_s)
        return (e.Send(event.worker),)

    def _answered(self, event: e.Answered, now: float) -> Actions:
        if self.state is not State.DISPATCHED:
            return ()
        self._status = event.status
        harmless = event.status == 503
        if harmless or event.status in (500, 502):
            lost = e.Lost(harmless=harmless, suspect=harmless)
            return self._again(lost, now, e.Drop()) or ()
        return ()

    def _began(self, _: e.Began, now: float) -> Actions:
        if self.state is State.DISPATCHED:
            self.state, self._first = State.STREAMING, now
            self.progress(now)
        return ()

    def _finished(self, _: e.Finished, now: float) -> Actions:
        if self.state is State.STREAMING:
            outcome = Outcome.STREAM_ERROR if self._error_passed else Outcome.OK
            return (e.Free(self._worker), e.Close(), self._settle(outcome, None, now))
        if self.state is State.DISPATCHED:
            return (e.Free(self._worker), e.Deliver(), self._settle(_judge_status(self._status), None, now))
        return ()

    def _client_gone(self, _: e.ClientGone, now: float) -> Actions:
        return (*self._leave(), self._settle(Outcome.CANCELLED, Code.CLIENT_CLOSED, now))

    def _expired(self, event: e.Expired, now: float) -> Actions:
        return self._end(self._why_late(held=event.held), now)

    def _refused(self, event: e.Refused, now: float) -> Actions:
        return self._end(event.error, now)

    def _lost(self, event: e.Lost, now: float) -> Actions:
        if self.state is State.STREAMING:
            return self._lost_streaming(now)
        if self.state is not State.DISPATCHED:
            return ()
        again = self._again(event, now)
        if again is not None:
            return again
        error = RequestError(Code.UPSTREAM_ERROR, "The worker was lost before it answered; retry.")
        return (e.Free(self._worker, suspect=event.suspect), e.Fail(error), self._settle_with(error, now))

    def _lost_streaming(self, now: float) -> Actions:
        if self._error_passed:
            return (e.Free(self._worker), e.Close(), self._settle(Outcome.STREAM_ERROR, None, now))
        error = RequestError(Code.STREAM_LOST, "The worker was lost while it answered; what came so far is incomplete.")
        return (e.Free(self._worker, suspect=True), e.Fail(error), self._settle_with(error, now))

    def _failed(self, _: e.Failed, now: float) -> Actions:
        if self.state is State.DISPATCHED:
            again = self._again(e.Lost(suspect=False), now, e.Drop())
            if again is not None:
                return again
        self._error_passed = self.state in (State.DISPATCHED, State.STREAMING)
        return ()

    def _again(self, lost: e.Lost, now: float, *first: e.Action) -> Actions | None:
        """Back into the queue, or None when that is not allowed any more."""
        if self._terms is None or self._budget is None:
            return None
        if lost.harmless:
            self._attempts -= 1
        elif self._attempts >= self._terms.attempts or not self._budget.take(now):
            return None
        self.state, self._status = State.QUEUED, 200
        # A worker that did nothing must not prolong the wait, one that died has used up time that was not a wait.
        self.deadline = (self._queued or now) + self._terms.hold_s if lost.harmless else now + self._terms.hold_s
        return (*first, e.Free(self._worker, suspect=lost.suspect), e.Enqueue(again=True))

    def _why_late(self, *, held: bool) -> RequestError:
        if self.state is State.ADMITTED:
            return RequestError(Code.HELD_TIMEOUT, "The tenant's limits could not be looked up in time; retry later.")
        if self.state is State.QUEUED:
            cause = "no worker of the model became ready" if held else "no worker of the model had room"
            return RequestError(Code.HELD_TIMEOUT, f"The request waited its whole limit, but {cause}; retry later.")
        return RequestError(Code.UPSTREAM_TIMEOUT, "The worker took too long to answer; retry.")

    def _end(self, error: RequestError, now: float) -> Actions:
        return (*self._leave(), e.Fail(error), self._settle_with(error, now))

    def _leave(self) -> Actions:
        if self.state is State.QUEUED:
            return (e.Withdraw(),)
        if self.state in (State.DISPATCHED, State.STREAMING):
            return (e.Drop(), e.Free(self._worker))
        return ()

    def _settle_with(self, error: RequestError, now: float) -> e.Settle:
        begun = self.state is State.STREAMING
        if not begun:
            self._status = error.row.status
        cut = begun and error.row.outcome is not Outcome.TIMEOUT
        return self._settle(Outcome.STREAM_ERROR if cut else error.row.outcome, error.code, now)

    def _settle(self, outcome: Outcome, code: Code | None, now: float) -> e.Settle:
        self.state, self.deadline = State.DONE, _NEVER
        if outcome is Outcome.CANCELLED:
            self._status = ERRORS[Code.CLIENT_CLOSED].status
        return e.Settle(
            Record(
                outcome=outcome,
                status=self._status,
                code=code,
                tenant=self._tenant,
                terms=self._terms,
                received=self._received,
                queued=self._queued,
                sent=self._sent,
                first=self._first,
                ended=now,
                attempts=self._attempts,
                worker=self._worker,
                meter=self.meter,
            )
        )

    _reactions: ClassVar[dict[type[e.Event], Callable[[Any, Any, float], Actions]]] = {
        e.Authenticated: _authenticated,
        e.Admitted: _admitted,
        e.Queued: _queued_up,
        e.Refused: _refused,
        e.Assigned: _assigned,
        e.Answered: _answered,
        e.Began: _began,
        e.Finished: _finished,
        e.Lost: _lost,
        e.Failed: _failed,
        e.ClientGone: _client_gone,
        e.Expired: _expired,
    }


def _judge_status(status: int) -> Outcome:
    """The outcome of an answer that the worker gave whole."""
    if status < 400:
        return Outcome.OK
    if status == 503:
        return Outcome.SHED
    if status == 504:
        return Outcome.TIMEOUT
    return Outcome.UPSTREAM_ERROR if status >= 500 else Outcome.CLIENT_ERROR
