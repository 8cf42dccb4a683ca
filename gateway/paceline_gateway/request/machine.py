"""A request's life in the gateway: one state machine, `on(event, now) -> actions`.

    RECEIVED -> AUTHENTICATED -> ADMITTED -> QUEUED -> DISPATCHED -> STREAMING -> DONE
                                               ^            | ^          |
                                               +--- lost ---+ |          |     before the first byte: within attempts
                                               |              |          |     and budget; after it: within RESUMES
                                  next place <-+   RESUMING --+<- lost --+     and `resume_s`

Invariants: every request ends in exactly one Settle; each Send is followed by exactly one ReleaseSlot of the same
worker; nothing happens after Settle. `deadline` is the limit of the current state: the driver of the machine reports
that it has passed as Expired. A stream that has begun (`begun`) is dispatched again only to continue where it broke
off; if it cannot, it ends with an error event. A request that its client cancels counts as no failure.

A request whose route has further destinations may be Diverted to one of them while it waits without a worker, before
its first byte. Earlier failures count: attempts belong to the request, and a dispatch after a failure uses the budget
of the service that failed it. Its waiting time does not start again.

A worker's death (`Lost.part`) counts the same before and after the first byte: it uses no attempt and no budget (a
route with one attempt retries nothing). Its cause, once found (`group_testing`), ends with `request_isolated`; a
request that was at more than DEATHS without a known cause ends as after too many losses. Any other loss uses one of the
attempts before the first byte, one of RESUMES after it.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from paceline_core.errors import ERRORS, Code, RequestError
from paceline_core.registry.enums import AbortReason, Outcome, ResumeReason
from paceline_gateway.request import events as e
from paceline_gateway.request import types
from paceline_gateway.request.attempts import Resumption, RetryBudget
from paceline_gateway.request.group_testing import DEATHS, SuspectGroup
from paceline_gateway.request.types import (
    ADMITTED,
    AT_WORKER,
    AUTHENTICATED,
    BEFORE_DISPATCH,
    DISPATCHED,
    DONE,
    QUEUED,
    RECEIVED,
    RESUMING,
    STREAMING,
    WAITING,
    RequestRecord,
    RequestState,
    RequestTerms,
    Timeouts,
    TokenUsage,
    is_clients,
    judge_status,
)

_NEVER = float("inf")
_OK, _CANCELLED = Outcome.OK, Outcome.CANCELLED
Actions = tuple[e.Action, ...]


class RequestMachine:
    """The state of one request. `meter` is shared with the scanner of the answer.

    `heard`: when a stream last brought bytes; set for each packet without an event. `limit`: the deadline of its state,
    except a stream's silence. `begun`: its client has content. `worker`: the current or last one.
    """

    __slots__ = (
        "_abort", "_again", "_attempts", "_budget", "_deaths", "_diverted", "_error", "_first", "_queued", "_received",
        "_resumption", "_sent", "_spared", "_status", "_tenant", "_terms", "_waits", "begun", "heard", "limit", "meter",
        "state", "worker",
    )  # fmt: skip

    def __init__(self, received: float, waits: Timeouts) -> None:
        self.state: RequestState = RECEIVED
        self.limit = _NEVER
        self.heard = 0.0
        self.begun = False
        self.meter = TokenUsage()
        self._received = received
        self._waits = waits
        self._budget: RetryBudget | None = None
        self._terms: RequestTerms | None = None
        self._tenant = ""
        self.worker = ""
        self._attempts = 0
        self._deaths = 0
        self._spared = 0
        self._status = 200
        self._error: e.AttemptFailed | None = None
        self._queued: float | None = None
        self._sent: float | None = None
        self._first: float | None = None
        self._again: float | None = None
        self._abort: AbortReason | None = None
        self._resumption: Resumption | None = None
        self._diverted = 0

    @property
    def deadline(self) -> float:
        """The limit of its state; for a stream, the limit of its silence."""
        return self.heard + self._waits.stream_idle_timeout_s if self.state is STREAMING else self.limit

    @property
    def waiting(self) -> bool:
        return self.state in WAITING

    def on(self, event: e.Event, now: float) -> Actions:
        """The actions that an event requires; none once the request is done."""
        if self.state is DONE:
            return ()
        return self._reactions[type(event)](self, event, now)

    def _authenticated(self, event: e.Authenticated, _now: float) -> Actions:
        if self.state is RECEIVED:
            self.state, self._tenant = AUTHENTICATED, event.tenant
        return ()

    def _admitted(self, event: e.Admitted, now: float) -> Actions:
        if self.state is AUTHENTICATED:
            self.state, self._terms, self._budget = ADMITTED, event.terms, event.budget
            self.limit = now + event.terms.hold_s
        return ()

    def _queued_up(self, _: e.Queued, now: float) -> Actions:
        if self.state is not ADMITTED or self._terms is None or self._budget is None:
            return ()
        self.state, self._queued = QUEUED, now
        self.limit = now + self._terms.hold_s
        self._budget.request(now)
        return (e.Enqueue(),)

    def _redirected(self, event: e.Diverted, now: float) -> Actions:
        if self.state not in BEFORE_DISPATCH:
            return ()
        waited = self.state is QUEUED
        hold = now + event.terms.hold_s
        self.limit = min(self.limit, hold) if waited else hold
        self.state, self._terms, self._budget = QUEUED, event.terms, event.budget
        self._diverted += 1
        self._queued = now if self._queued is None else self._queued
        event.budget.request(now)
        return (e.Dequeue(), e.SwitchDestination(), e.Enqueue()) if waited else (e.SwitchDestination(), e.Enqueue())

    def _assigned(self, event: e.Assigned, now: float) -> Actions:
        if not self.waiting or self._terms is None:
            return ()
        self.state = DISPATCHED
        self.worker, self._sent = event.worker, now
        if self.begun:
            return (e.Send(event.worker),)
        self._attempts += 1
        self.limit = now + (self._waits.first_token_s if self._terms.stream else self._waits.answer_s)
        return (e.Send(event.worker),)

    def _answered(self, event: e.Answered, now: float) -> Actions:
        if self.state is not DISPATCHED:
            return ()
        harmless = event.status == 503
        if event.part is not None:
            return self._died(
                e.Lost(suspect=False, reason=ResumeReason.ENGINE, abort=None, part=event.part), now, e.AbortUpstream()
            )
        if self.begun:
            lost = e.Lost(harmless=harmless, suspect=harmless and not event.busy, abort=None)
            return self._lost_begun(lost, now, e.AbortUpstream()) if event.status != 200 else ()
        self._status = event.status
        if harmless or event.status in (500, 502) or (event.status == 429 and self._terms and self._terms.fallbacks):
            lost = e.Lost(harmless=harmless, suspect=harmless and not event.busy)
            return self._retry(lost, now, e.AbortUpstream()) or ()
        return ()

    def _began(self, _: e.Began, now: float) -> Actions:
        if self.state is not DISPATCHED:
            return ()
        self.state = STREAMING
        self.heard = now
        if self._resumption is None:
            self._first, self.begun = now, True
            return ()
        self._again = now
        return (e.Resumed(self._resumption.reason, self._resumption.began(now)),)

    def _finished(self, event: e.Finished, now: float) -> Actions:
        if self.state in AT_WORKER and self.begun:
            return (e.ReleaseSlot(self.worker), e.Close(), self._settle(*self._ending(), now))
        if self.state is DISPATCHED:
            settle = self._settle(judge_status(self._status), event.code, now)
            return (e.ReleaseSlot(self.worker), e.SendResponse(), settle)
        return ()

    def _client_gone(self, event: e.ClientGone, now: float) -> Actions:
        code = Code.CLIENT_STALLED if event.stalled else Code.CLIENT_CLOSED
        return (*self._leave(), self._settle(Outcome.CANCELLED, code, now))

    def _expired(self, event: e.Expired, now: float) -> Actions:
        if self.state is STREAMING and event.abort is None:
            return self._lost_begun(e.Lost(reason=ResumeReason.STALL, abort=None), now, e.AbortUpstream())
        if self.begun:
            self._abort = event.abort if self.state is STREAMING else AbortReason.DEADLINE_EXCEEDED
        return self._end(types.late(self.state, begun=self.begun, held=event.held), now)

    def _refused(self, event: e.Refused, now: float) -> Actions:
        return self._end(event.error, now)

    def _lost(self, event: e.Lost, now: float) -> Actions:
        if self.state not in AT_WORKER:
            return ()
        if event.part is not None:
            return self._died(event, now)
        return self._lost_begun(event, now) if self.begun else self._lost_unbegun(event, now)

    def _lost_unbegun(self, lost: e.Lost, now: float, *first: e.Action) -> Actions:
        again = self._retry(lost, now, *first)
        if again is not None:
            return again
        error = types.lost(begun=False)
        return (*first, e.ReleaseSlot(self.worker, suspect=lost.suspect), e.Fail(error), self._settle_with(error, now))

    def _died(self, lost: e.Lost, now: float, *first: e.Action) -> Actions:
        """Its worker died: the end for a culprit; for others no attempt is used, before or after the first byte."""
        if lost.part is SuspectGroup.CULPRIT:
            error = types.isolated()
            free = e.ReleaseSlot(self.worker, suspect=lost.suspect)
            return (*first, free, e.Fail(error), self._settle_with(error, now))
        self._deaths += lost.part is SuspectGroup.SUSPECT
        on = self._lost_begun(lost, now, *first) if self.begun else self._lost_unbegun(lost, now, *first)
        return on if lost.part is None or self.state is DONE else (e.Accuse(lost.part), *on)

    def _lost_begun(self, lost: e.Lost, now: float, *first: e.Action) -> Actions:
        """Continue at another worker, after the last token that the client has; or end."""
        if self._error is not None:
            return (*first, e.ReleaseSlot(self.worker), e.Close(), self._settle(*self._ending(), now))
        resumption = self._resumption = self._resumption or Resumption()
        begun = self._again or self._first
        if self.state is STREAMING and begun is not None and self._sent is not None:
            resumption.lost(lost.reason, self.heard, now + self._waits.resume_s)
            resumption.spent(self._sent, begun, now)
            self._sent, self.meter.worker = now, None
        spared = lost.harmless or lost.part is not None
        self._abort = lost.abort or self._outlived or resumption.refusal(harmless=spared, now=now)
        free = e.ReleaseSlot(self.worker, suspect=lost.suspect)
        if self._abort is None:
            self.state, self.limit = RESUMING, resumption.deadline
            return (*first, free, e.Enqueue(again=True, resume=True))
        error = types.lost(begun=True)
        return (*first, free, e.Fail(error), self._settle_with(error, now))

    @property
    def _outlived(self) -> AbortReason | None:
        """The reason to end a request that was at too many deaths without a known cause."""
        return AbortReason.MAX_ATTEMPTS if self._deaths > DEATHS else None

    def _ending(self) -> tuple[Outcome, Code | None]:
        """The result of a stream that its worker ended; a client's own error is no failure of the service."""
        if self._error is not None and not is_clients(self._error.code):
            return Outcome.STREAM_ERROR, None
        return (_OK, None) if self._error is None else (Outcome.CLIENT_ERROR, self._error.code)

    def _failed(self, event: e.AttemptFailed, now: float) -> Actions:
        if self.state is DISPATCHED and not self.begun and not is_clients(event.code):
            again = self._retry(e.Lost(suspect=False), now, e.AbortUpstream())
            if again is not None:
                return again
        self._error = event if self.state in AT_WORKER else None
        return ()

    def _retry(self, lost: e.Lost, now: float, *first: e.Action) -> Actions | None:
        """Back into the queue; None when that is no longer allowed."""
        if self._terms is None or self._budget is None:
            return None
        if lost.harmless:
            self._attempts -= 1
        elif lost.part is not None:
            if self._terms.attempts == 1 or self._outlived:
                return None
            self._spared += 1
        elif self._attempts - self._spared >= self._terms.attempts or not self._budget.take(now):
            return None
        self.state, self._status = QUEUED, 200
        # A worker that did nothing must not prolong the wait; the time at a worker that died was not a wait.
        self.limit = (self._queued or now) + self._terms.hold_s if lost.harmless else now + self._terms.hold_s
        last = not lost.harmless and self._attempts - self._spared + 1 >= self._terms.attempts
        seek = (e.TryFallback(last),) if self._terms.fallbacks else ()
        return (*first, e.ReleaseSlot(self.worker, suspect=lost.suspect), e.Enqueue(again=True), *seek)

    def _end(self, error: RequestError, now: float) -> Actions:
        return (*self._leave(), e.Fail(error), self._settle_with(error, now))

    def _leave(self) -> Actions:
        if self.waiting:
            return (e.Dequeue(),)
        if self.state in AT_WORKER:
            return (e.AbortUpstream(), e.ReleaseSlot(self.worker))
        return ()

    def _settle_with(self, error: RequestError, now: float) -> e.Settle:
        if not self.begun:
            self._status = error.row.status
        aborted = self.begun and error.row.outcome is not Outcome.TIMEOUT
        return self._settle(Outcome.STREAM_ERROR if aborted else error.row.outcome, error.code, now)

    def _settle(self, outcome: Outcome, code: Code | None, now: float) -> e.Settle:
        sent, resumption = now if self.state is RESUMING else self._sent, self._resumption
        self.state, self.limit = DONE, _NEVER
        if outcome is _CANCELLED:
            self._status = ERRORS[Code.CLIENT_CLOSED].status
        record = RequestRecord(
            outcome=outcome,
            status=self._status,
            code=code,
            tenant=self._tenant,
            terms=self._terms,
            received=self._received,
            queued=self._queued,
            sent=sent,
            first=self._first,
            ended=now,
            attempts=self._attempts,
            worker=self.worker,
            meter=self.meter,
            diverted=self._diverted,
        )
        if resumption is not None:
            earlier = resumption.earlier
            record = replace(record, resumed=resumption.count, again=self._again, earlier=earlier, abort=self._abort)
        return e.Settle(record)

    _reactions: ClassVar[dict[type[e.Event], Callable[[Any, Any, float], Actions]]] = {
        e.Authenticated: _authenticated,
        e.Admitted: _admitted,
        e.Queued: _queued_up,
        e.Diverted: _redirected,
        e.Refused: _refused,
        e.Assigned: _assigned,
        e.Answered: _answered,
        e.Began: _began,
        e.Finished: _finished,
        e.Lost: _lost,
        e.AttemptFailed: _failed,
        e.ClientGone: _client_gone,
        e.Expired: _expired,
    }
