"""The engine's only thread: inbox, plan, execute, commit, outbox; again.

Everything happens here, heartbeats too, so that a loop which hangs falls silent and the watchdog sees it. A step that
raises costs its requests, not the engine, unless ATTEMPTS in a row do: then the process ends and the next one is tried.
"""

from collections import deque
from typing import NoReturn

from paceline_core.errors import PacelineError
from paceline_core.telemetry import get_logger
from paceline_workers.engine.backend import Backend, Facts
from paceline_workers.engine.channel import Channel
from paceline_workers.engine.memory.kv import KvMemory
from paceline_workers.engine.scheduling import Plan, Request, Scheduler
from paceline_workers.engine.steptime import StepTimeFit
from paceline_workers.engine.timer import Timer
from paceline_workers.messages import Abort, Heartbeat, Started, StepStats, Submit, Tokens

BEAT = 0.2
ATTEMPTS = 3
_RECENT = 1024

_log = get_logger(__name__)


class EngineLoop:
    """Serves one API process until it goes."""

    def __init__(self, channel: Channel, backend: Backend, timer: Timer, *, prefix_cache: bool = True) -> None:
        facts = backend.facts
        self._channel = channel
        self._backend = backend
        self._timer = timer
        self._memory = _memory(facts, prefix_cache)
        self._scheduler = Scheduler(self._memory, facts.limits)
        self._scheduler.model = facts.prior
        self._fit = StepTimeFit(facts.prior)
        self._recent: deque[StepStats] = deque(maxlen=_RECENT)
        self._since: float | None = None
        self._wake = self._next_beat = timer.now()
        self._failures = 0

    def run(self) -> NoReturn:
        """Until the API process wants no more of it: raises PeerGone."""
        self._channel.send(started(self._backend.facts))
        while True:
            self.turn()

    def turn(self) -> None:
        """One round; sleeps only when there is nothing to compute."""
        for message in self._channel.receive(self._wake - self._timer.now()):
            self._take(message)
        now = self._timer.now()
        self._tell(self._scheduler.expire(now))
        plan = Plan() if self._channel.full else self._scheduler.step(now)
        if plan.chunks:
            self._execute(plan)
        self._beat()
        self._rest(plan)
        self._channel.flush()

    def _take(self, message: Submit | Abort) -> None:
        match message:
            case Submit():
                request = Request.of(message, self._backend.facts.eos_ids, self._timer.now())
                if refusal := self._unable(request) or self._scheduler.submit(request):
                    self._tell([Tokens(message.id, 0, [], finish="error", error=refusal)])
            case Abort():
                self._scheduler.abort(message.id)

    def _unable(self, request: Request) -> str:
        able = self._backend.facts.grammars or not request.sampling.grammar
        return "" if able else "this worker's backend cannot follow a grammar"

    def _execute(self, plan: Plan) -> None:
        since = self._timer.now() if self._since is None else self._since
        try:
            executed = self._backend.execute(plan, since)
        except Exception as error:  # noqa: BLE001 - whatever a step raises must cost its own requests alone
            self._fail(plan, error)
            return
        self._failures = 0
        self._since = self._timer.now()
        self._tell(self._scheduler.commit(plan, executed.samples, self._since))
        self._note(plan, self._since - since, executed.lateness)

    def _fail(self, plan: Plan, error: Exception) -> None:
        _log.error("a step failed", exc_info=error, extra={"requests": len(plan.chunks)})
        self._tell(self._scheduler.fail(plan, "The engine failed while computing this request.", self._timer.now()))
        self._failures += 1
        if self._failures >= ATTEMPTS:
            raise PacelineError(f"{ATTEMPTS} steps in a row failed, the last one with {error!r}")

    def _note(self, plan: Plan, seconds: float, lateness: float) -> None:
        stats = StepStats(
            seconds=seconds,
            prefill_tokens=plan.prefill_tokens,
            decode_tokens=plan.decode_tokens,
            sequences=len(plan.chunks),
            kv_tokens=plan.kv_tokens,
            lateness=lateness,
            window=plan.window,
            context=plan.context,
        )
        self._fit.observe(stats)
        self._recent.append(stats)

    def _tell(self, events: list[Tokens]) -> None:
        for event in events:
            self._channel.send(event)

    def _rest(self, plan: Plan) -> None:
        """When the next round must begin: at once while there is work, else at a wake-up or the next heartbeat."""
        if plan.chunks:
            self._wake = self._timer.now()
            return
        self._since = None
        self._wake = self._next_beat if plan.wake is None else min(plan.wake, self._next_beat)

    def _beat(self) -> None:
        now = self._timer.now()
        if now < self._next_beat:
            return
        self._next_beat = now + BEAT
        if not self._channel.full:
            self._channel.send(self._heartbeat(now))
            self._recent.clear()

    def _heartbeat(self, now: float) -> Heartbeat:
        core, memory, model = self._scheduler, self._memory, self._fit.model
        memory.prefill_seconds = model.prefill
        core.model = model
        return Heartbeat(
            steps=core.counters.steps,
            running=len(core.running),
            waiting=core.waiting.counts(),
            queued_tokens=core.queued_tokens(),
            oldest_wait=core.oldest_wait(now),
            pages_free=memory.free,
            pages_cached=memory.cached,
            preemptions=core.counters.preemptions,
            evicted_pages=memory.evicted,
            lookup_tokens=core.counters.lookup_tokens,
            hit_tokens=core.counters.hit_tokens,
            step_time=[model.base, model.prefill, model.sequence, model.kv, model.context, float(model.observations)],
            recent=list(self._recent),
            evicted_idle_s=memory.idle_seconds,
            host_pages=memory.host_used,
            pages_out=memory.pages_out,
            pages_in=memory.pages_in,
            restored_tokens=memory.restored_tokens,
            recomputed_tokens=core.counters.recomputed_tokens,
            shed=core.counters.shed,
        )


def _memory(facts: Facts, prefix_cache: bool) -> KvMemory:
    memory = KvMemory(
        facts.pages,
        facts.limits.page_tokens,
        prefix_cache=prefix_cache,
        host_pages=facts.host_pages,
        copy_seconds=facts.page_copy_s,
    )
    memory.prefill_seconds = facts.prior.prefill
    return memory


def started(facts: Facts) -> Started:
    """What the API process is told about a loaded backend."""
    return Started(
        pages=facts.pages,
        page_tokens=facts.limits.page_tokens,
        page_bytes=facts.page_bytes,
        max_model_len=facts.limits.max_model_len,
        slots=facts.limits.slots,
        eos_ids=list(facts.eos_ids),
        emulated=facts.emulated,
        stages=facts.stages,
        defaults=dict(facts.defaults),
        grammars=facts.grammars,
    )
