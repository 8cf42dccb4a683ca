"""The engine's loop: inbox, plan, launch, collect, commit, outbox; again.

Where a backend computes beside the host (`facts.ahead`), the next step is planned and laid out while one computes, and
results are taken in one step late. It is planned as late as the step-time model and the host's own pace allow, since
who comes after that waits one step longer.

Everything happens here, heartbeats too, so that a loop which hangs falls silent and the watchdog sees it; while one
step lasts, its backend says whether it gets on. A step that raises costs its requests, not the engine, unless ATTEMPTS
in a row do: then the process ends and the next one is tried.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NoReturn

from paceline_core.errors import PacelineError
from paceline_core.telemetry import get_logger
from paceline_workers.engine.backends.base import Backend, BackendInfo
from paceline_workers.engine.channel import Channel, PeerGone
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.kv_cache.prefetch import DiskPrefetchQueue
from paceline_workers.engine.kv_cache.tiers import DiskIndex
from paceline_workers.engine.sampling.grammar_queue import GrammarCompileQueue
from paceline_workers.engine.scheduling import Rejection, Request, Scheduler, StepPlan
from paceline_workers.engine.scheduling.beams import request_of
from paceline_workers.engine.steptime import StepTimeFit
from paceline_workers.engine.timer import Timer
from paceline_workers.messages import Abort, Heartbeat, Started, StepStats, Submit, Tokens

BEAT = 0.2
ATTEMPTS = 3
_RECENT = 1024
_HEADROOM = 0.1
"""Of a step's predicted seconds: how far it may be over early."""
_RECALL = 0.9
"""What the host's seconds a step keep of their past maximum at each step."""

_log = get_logger(__name__)


@dataclass(slots=True)
class _Flight:
    """A launched step; it began at `since`, or when the one before it was collected."""

    plan: StepPlan
    since: float


class EngineLoop:
    """Serves one API process until it goes."""

    def __init__(self, channel: Channel, backend: Backend, timer: Timer, *, prefix_cache: bool = True) -> None:
        facts = backend.facts
        self._channel = channel
        self._backend = backend
        self._timer = timer
        self._memory = _memory(facts, prefix_cache)
        self._scheduler = Scheduler(self._memory, facts.limits)
        self._scheduler.learn(facts.prior)
        self._compiling = GrammarCompileQueue(facts.grammars)
        self._lobby = DiskPrefetchQueue(self._memory, facts.disk, facts.limits)
        self._fit = StepTimeFit(facts.prior)
        self._recent: deque[StepStats] = deque(maxlen=_RECENT)
        self._flights: deque[_Flight] = deque()
        self._ended: float | None = None
        self._host = 0.0
        self._wake = self._next_beat = timer.now()
        self._failures = 0

    def run(self) -> NoReturn:
        """Until the API process wants no more of it: raises PeerGone."""
        self._channel.send(started(self._backend.facts))
        while True:
            self.turn()

    def turn(self) -> None:
        """One round; sleeps when there is nothing to compute, or while it is too early to plan the next step."""
        due = min(self._wake, self._next_beat) - self._timer.now()
        for message in self._channel.receive(min(due, self._lobby.glance, self._compiling.glance)):
            self._take(message)
        now = self._timer.now()
        for guest in self._compiling.leave(now):
            if guest.refusal:
                self._refuse(guest.request, guest.refusal)
            else:
                self._enter(guest.request, guest.submit)
        for request in self._lobby.leave(now):
            self._submit(request)
        self._tell(self._scheduler.expire(now))
        if not self._flights or now >= self._wake:
            self._step(now)
        self._beat()
        self._channel.flush()

    def _take(self, message: Submit | Abort) -> None:
        match message:
            case Submit():
                facts = self._backend.facts
                request = request_of(message, facts.eos_ids, self._timer.now(), facts.limits.max_model_len)
                if reason := self._unable(request):
                    self._refuse(request, Rejection(reason))
                elif not self._compiling.enter(request, message):
                    self._enter(request, message)
            case Abort():
                self._compiling.abort(message.id)
                self._lobby.abort(message.id)
                self._scheduler.abort(message.id)

    def _enter(self, request: Request, message: Submit) -> None:
        if self._lobby.enter(request, self._timer.now()) or self._submit(request):
            self._memory.note(request, message.prefix_keys)

    def _submit(self, request: Request) -> bool:
        if refusal := self._scheduler.submit(request):
            self._refuse(request, refusal)
        return refusal is None

    def _refuse(self, request: Request, refusal: Rejection) -> None:
        self._tell([Tokens(request.id, 0, [], finish=refusal.finish, error=refusal.message)])

    def _unable(self, request: Request) -> str:
        facts = self._backend.facts
        if request.embed and not facts.embedding:
            return "this worker's backend makes no embeddings"
        able = facts.grammars is not None or not request.sampling.grammar
        return "" if able else "this worker's backend cannot follow a grammar"

    def _step(self, now: float) -> None:
        plan = StepPlan() if self._channel.full else self._scheduler.step(now)
        launched = bool(plan.chunks) and self._launch(plan, now)
        self._host = max(self._timer.now() - now, self._host * _RECALL)
        if collects := bool(self._flights) and not (launched and self._ahead):
            self._collect()
        self._rest(plan, busy=collects or bool(plan.chunks))

    @property
    def _ahead(self) -> bool:
        """The step in flight may stay there."""
        return self._backend.facts.ahead and len(self._flights) == 1

    def _launch(self, plan: StepPlan, now: float) -> bool:
        since = now if self._ended is None else self._ended
        try:
            self._backend.launch(plan, since)
        except Exception as error:  # noqa: BLE001 - whatever a step raises must cost its own requests alone
            self._fail(plan, error)
            return False
        self._flights.append(_Flight(plan, since))
        return True

    def _collect(self) -> None:
        flight = self._flights.popleft()
        try:
            executed = self._backend.collect(self._alive)
        except PeerGone:
            raise
        except Exception as error:  # noqa: BLE001 - the same
            self._fail(flight.plan, error)
            while self._flights:
                plan = self._flights.popleft().plan
                self._lobby.lost(plan.copies)
                self._scheduler.retract(plan)
            return
        self._failures = 0
        self._ended = now = self._timer.now()
        for other in self._flights:
            other.since = now
        self._tell(self._scheduler.commit(flight.plan, executed.samples, now, executed.scores))
        self._note(flight.plan, executed.seconds or now - flight.since, executed.lateness)

    def _alive(self) -> None:
        self._beat()
        self._channel.flush()

    def _fail(self, plan: StepPlan, error: Exception) -> None:
        _log.error("a step failed", exc_info=error, extra={"requests": len(plan.chunks)})
        self._lobby.lost(plan.copies)
        self._tell(self._scheduler.fail(plan, "The engine failed while computing this request.", self._timer.now()))
        self._failures += 1
        if self._failures >= ATTEMPTS:
            raise PacelineError(f"{ATTEMPTS} steps in a row failed, the last one with {error!r}")

    def _note(self, plan: StepPlan, seconds: float, lateness: float) -> None:
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

    def _rest(self, plan: StepPlan, *, busy: bool) -> None:
        """When the next round must begin: for the next step while there is work, else at a wake-up or a heartbeat."""
        if self._flights:
            self._wake = self._flights[0].since + self._head_start(self._flights[0].plan)
        elif busy:
            self._wake = self._timer.now()
        else:
            self._ended = None
            self._wake = self._next_beat if plan.wake is None else min(plan.wake, self._next_beat)

    def _head_start(self, plan: StepPlan) -> float:
        """Seconds into a step at which the next one should be planned, to be laid out when this one is over."""
        seconds = self._fit.model.seconds(
            prefill_tokens=plan.prefill_tokens,
            sequences=plan.decode_tokens,
            kv_tokens=plan.kv_tokens,
            context=plan.context,
        )
        return seconds * (1 - _HEADROOM) - 2 * self._host

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
        memory.offload.prefill_seconds = model.prefill
        core.learn(model, self._fit.error)
        added, evicted = memory.key_changes()
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
            host_pages=memory.offload.host_used,
            pages_out=memory.offload.pages_out,
            pages_in=memory.offload.pages_in,
            loading=len(self._lobby),
            disk_pages=memory.offload.disk_used,
            disk_pages_out=memory.offload.disk_out,
            disk_pages_in=memory.offload.disk_in,
            restored_tokens=memory.offload.restored_tokens,
            recomputed_tokens=core.counters.recomputed_tokens,
            slack_tokens=_slack(core.running, memory),
            shed_by=dict(core.counters.shed_by),
            debt_pages=core.admission.debt(core.running),
            prefix_added=added,
            prefix_evicted=evicted,
        )


def _slack(running: Iterable[Request], memory: KVCacheManager) -> int:
    """Tokens that would still fit into the pages that requests hold."""
    return sum(max(memory.covered(request) - request.wanted, 0) for request in running)


def _memory(facts: BackendInfo, prefix_cache: bool) -> KVCacheManager:
    memory = KVCacheManager(
        facts.pages,
        facts.limits.page_tokens,
        prefix_cache=prefix_cache,
        host_pages=facts.host_pages,
        copy_seconds=facts.page_copy_s,
        attention_window=facts.attention_window,
        ahead=facts.limits.step_tokens,
        disk=DiskIndex(facts.disk.limit, facts.disk.known) if facts.disk else None,
    )
    memory.offload.prefill_seconds = facts.prior.prefill
    return memory


def started(facts: BackendInfo) -> Started:
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
        grammars=facts.grammars is not None,
        embedding=facts.embedding,
    )
