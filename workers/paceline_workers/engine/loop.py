"""The engine's loop: read the inbox, run one round of the step cycle (`step_cycle`) on a backend, write the outbox.

The loop does everything, including heartbeats, so a loop that hangs falls silent and the watchdog notices; during a
long step its backend reports progress. A step that raises ends its requests, not the engine. After ATTEMPTS such steps
in a row the process ends, and the API process starts the next one.
"""

from typing import NoReturn

from paceline_core.errors import PacelineError
from paceline_core.telemetry import get_logger
from paceline_workers.engine.backends.base import Backend, BackendInfo
from paceline_workers.engine.channel import Channel, PeerGone
from paceline_workers.engine.kv_cache.prefetch import DiskPrefetchQueue
from paceline_workers.engine.sampling.grammar_queue import GrammarCompileQueue
from paceline_workers.engine.scheduling import Rejection, Request
from paceline_workers.engine.scheduling.beams import request_of
from paceline_workers.engine.step_cycle import PlannedStep, StepCycle
from paceline_workers.engine.timer import Timer
from paceline_workers.messages import Abort, Started, Submit, Tokens

BEAT = 0.2
ATTEMPTS = 3
POLL = 0.001
"""Seconds between two checks for compiled grammars and read pages, while a request waits for one."""

_log = get_logger(__name__)


class EngineLoop:
    """Serves one API process until it is gone."""

    def __init__(self, channel: Channel, backend: Backend, timer: Timer, *, prefix_cache: bool = True) -> None:
        self._facts = facts = backend.facts
        self._channel = channel
        self._backend = backend
        self._timer = timer
        self._cycle = StepCycle.of(facts, prefix_cache=prefix_cache, now=timer.now())
        self._scheduler = self._cycle.scheduler
        self._memory = self._cycle.memory
        self._grammars = GrammarCompileQueue(facts.grammars)
        self._prefetch = DiskPrefetchQueue(self._memory, facts.disk, facts.limits)
        self._next_beat = timer.now()
        self._failures = 0

    def run(self) -> NoReturn:
        """Run until the API process shuts the engine down or is gone: raises PeerGone."""
        self._channel.send(started(self._facts))
        while True:
            self.turn()

    def turn(self) -> None:
        """One round; sleeps if there is nothing to compute, or while it is too early to plan the next step."""
        due = min(self._cycle.wake, self._next_beat) - self._timer.now()
        some_wait = self._grammars.waiting or self._prefetch.waiting
        for message in self._channel.receive(min(due, POLL) if some_wait else due):
            match message:
                case Submit():
                    eos, longest = self._facts.eos_ids, self._facts.limits.max_model_len
                    self._submit(request_of(message, eos, self._timer.now(), longest), message)
                case Abort():
                    self._grammars.abort(message.id)
                    self._prefetch.abort(message.id)
                    self._scheduler.abort(message.id)
        now = self._timer.now()
        for pending in self._grammars.leave(now):
            if pending.refusal:
                self._refuse(pending.request, pending.refusal)
            else:
                self._queue(pending.request, pending.submit)
        for request in self._prefetch.leave(now):
            if refusal := self._scheduler.submit(request):
                self._refuse(request, refusal)
        self._channel.send(*self._scheduler.expire(now))
        self._step(now, stalled=self._channel.full)
        self._beat()

    def _submit(self, request: Request, message: Submit) -> None:
        """Queue a request once its grammar is compiled and its pages are read, or refuse what the backend cannot do."""
        if request.embed and not self._facts.embedding:
            self._refuse(request, Rejection("this worker's backend makes no embeddings"))
        elif request.sampling.grammar and self._facts.grammars is None:
            self._refuse(request, Rejection("this worker's backend cannot follow a grammar"))
        elif not request.sampling.grammar or not self._grammars.enter(request, message):
            self._queue(request, message)

    def _queue(self, request: Request, message: Submit) -> None:
        if not self._prefetch.enter(request, self._timer.now()) and (refusal := self._scheduler.submit(request)):
            self._refuse(request, refusal)
        else:
            self._memory.note(request, message.prefix_keys)

    def _refuse(self, request: Request, refusal: Rejection) -> None:
        self._channel.send(Tokens(request.id, 0, [], finish=refusal.finish, error=refusal.message))

    def _step(self, now: float, *, stalled: bool) -> None:
        """One round of the cycle, if it is due: plan, launch, collect, commit."""
        cycle = self._cycle
        if not cycle.due(now):
            return
        step = cycle.plan(now, stalled=stalled)
        if step is not None:
            try:
                self._backend.launch(step.plan, step.since)
            except Exception as error:  # noqa: BLE001 - whatever a step raises must end only its own requests
                self._fail(step, error)
                step = None
        if (done := cycle.collect(step, self._timer.now() - now)) is not None:
            try:
                result = self._backend.collect(self._beat)
            except PeerGone:
                raise
            except Exception as error:  # noqa: BLE001 - as above
                self._fail(done, error)
                while (behind := cycle.retract()) is not None:
                    self._prefetch.lost(behind.plan.copies)
            else:
                self._failures = 0
                self._channel.send(*cycle.commit(done, result, self._timer.now()))
        cycle.finish(self._timer.now())

    def _fail(self, step: PlannedStep, error: Exception) -> None:
        _log.error("a step failed", exc_info=error, extra={"requests": len(step.plan.chunks)})
        self._prefetch.lost(step.plan.copies)
        self._channel.send(*self._cycle.fail(step, self._timer.now()))
        self._failures += 1
        if self._failures >= ATTEMPTS:
            raise PacelineError(f"{ATTEMPTS} steps in a row failed, the last one with {error!r}")

    def _beat(self) -> None:
        """Write the queued frames for the API process, and a heartbeat if one is due."""
        now = self._timer.now()
        if now >= self._next_beat:
            self._next_beat = now + BEAT
            if not self._channel.full:
                self._channel.send(self._cycle.heartbeat(now, len(self._prefetch.waiting)))
        self._channel.flush()


def started(facts: BackendInfo) -> Started:
    """The first frame to the API process."""
    return Started(
        pages=facts.pages,
        page_tokens=facts.limits.page_tokens,
        page_bytes=facts.page_bytes,
        max_model_len=facts.limits.max_model_len,
        slots=facts.limits.max_seqs,
        eos_ids=list(facts.eos_ids),
        emulated=facts.emulated,
        stages=facts.stages,
        defaults=dict(facts.defaults),
        grammars=facts.grammars is not None,
        embedding=facts.embedding,
    )
