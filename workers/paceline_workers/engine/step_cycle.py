"""One engine's cycle as a state machine without a clock: plan, launch, collect, commit, and when to plan again.

The engine's loop executes it with a backend; a simulation executes it with a `StepClock` and no process. A round is

    step = cycle.plan(now)              None: nothing to compute
    done = cycle.collect(step, host)    after the launch; if that failed, cycle.fail(step, now) and None for the step;
                                        returns None if the step in flight may stay there
    cycle.commit(done, result, now)     returns the clients' frames; if the step failed, `fail`, and `retract` until no
                                        step is in flight
    cycle.finish(now)                   sets `wake`: the next round begins then, or as soon as requests arrive

If a backend computes concurrently with the host (`ahead`), one step stays in flight: the next one is planned while it
computes, and results are committed one step late. The cycle plans as late as the step-time fit and the host's speed
allow, because a request that arrives after the planning waits one step longer.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf

from paceline_workers.engine.backends.base import BackendInfo, StepResult
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.kv_cache.offload import DiskIndex
from paceline_workers.engine.scheduling import Chunk, Request, Scheduler, StepPlan
from paceline_workers.engine.scheduling.leap import Leap, Times, Words, leap_limit, prompt_chunks
from paceline_workers.engine.steptime import StepTimeEstimate, StepTimeFit
from paceline_workers.messages import Heartbeat, StepStats, Tokens

FAILED = "The engine failed while computing this request."
_RECENT_STEPS = 1024
_HEADROOM = 0.1
"""The share of a step's predicted seconds by which it may be over early."""
_HOST_DECAY = 0.9
"""The factor by which the past maximum of the host's seconds decays at each step."""


@dataclass(slots=True)
class PlannedStep:
    """A step with something to compute; it begins at `since`, or when the step before it is collected."""

    plan: StepPlan
    since: float


class StepCycle:
    """The scheduler, the steps in flight, and the step-time fit that learns from them."""

    def __init__(self, scheduler: Scheduler, fit: StepTimeEstimate, *, ahead: bool, now: float) -> None:
        self.scheduler = scheduler
        self.memory = scheduler.memory
        self.fit = fit
        self.wake = now
        self._ahead = ahead
        self._in_flight: deque[PlannedStep] = deque()
        self._plan = StepPlan()
        self._collected = False
        self._ended: float | None = None
        self._host = 0.0
        self._recent: deque[StepStats] = deque(maxlen=_RECENT_STEPS)

    @classmethod
    def of(cls, info: BackendInfo, *, prefix_cache: bool, now: float) -> "StepCycle":
        """The cycle of an engine with this backend."""
        memory = KVCacheManager(
            info.pages,
            info.limits.page_tokens,
            prefix_cache=prefix_cache,
            host_pages=info.host_pages,
            copy_seconds=info.page_copy_s,
            attention_window=info.attention_window,
            ahead=info.limits.step_tokens,
            disk=DiskIndex(info.disk.limit, info.disk.known) if info.disk else None,
        )
        memory.offload.prefill_seconds = info.prior.prefill
        scheduler = Scheduler(memory, info.limits)
        scheduler.learn(info.prior)
        return cls(scheduler, StepTimeFit(info.prior), ahead=info.ahead, now=now)

    # --- one round

    def due(self, now: float) -> bool:
        """Whether a round may begin; with a step in flight, not before `wake`."""
        return not self._in_flight or now >= self.wake

    def plan(self, now: float, *, stalled: bool = False) -> PlannedStep | None:
        """Begin a round; returns the step to launch, if any. `stalled`: nothing new may be computed."""
        self._plan = StepPlan() if stalled else self.scheduler.step(now)
        self._collected = False
        return PlannedStep(self._plan, now if self._ended is None else self._ended) if self._plan.chunks else None

    def collect(self, launched: PlannedStep | None, host: float) -> PlannedStep | None:
        """The step to wait for in this round; None if the step just launched may stay in flight alone.

        `host`: the host's seconds to plan and launch it.
        """
        self._host = max(host, self._host * _HOST_DECAY)
        if launched is not None:
            self._in_flight.append(launched)
        if not self._in_flight or (launched is not None and self._ahead and len(self._in_flight) == 1):
            return None
        self._collected = True
        return self._in_flight.popleft()

    def commit(self, step: PlannedStep, result: StepResult, now: float) -> list[Tokens]:
        """Apply a step's results; returns the clients' frames."""
        self._ended = now
        for other in self._in_flight:
            other.since = now
        frames = self.scheduler.commit(step.plan, result.samples, now, result.scores)
        work = step.plan.work
        stats = StepStats(
            seconds=result.seconds or now - step.since,
            prefill_tokens=work.prefill_tokens,
            decode_tokens=work.sequences,
            sequences=len(step.plan.chunks),
            kv_tokens=work.kv_tokens,
            lateness=result.lateness,
            window=step.plan.window,
            context=work.context,
        )
        self.fit.observe(stats)
        self._recent.append(stats)
        return frames

    def fail(self, step: PlannedStep, now: float) -> list[Tokens]:
        """End the requests of a step that raised; returns the clients' frames."""
        return self.scheduler.fail(step.plan, FAILED, now)

    def retract(self) -> PlannedStep | None:
        """Take back a step launched after one that raised; None if none is in flight."""
        if not self._in_flight:
            return None
        step = self._in_flight.popleft()
        self.scheduler.retract(step.plan)
        return step

    def planning_time(self, since: float, seconds: float) -> float:
        """When to plan behind a step that begins at `since` and is predicted to take `seconds`: late enough to see new
        requests, early enough to have the next step laid out when this one is over."""
        return since + seconds * (1 - _HEADROOM) - 2 * self._host

    def finish(self, now: float) -> None:
        """End a round: set when the next one must begin."""
        if self._in_flight:
            flying = self._in_flight[0]
            self.wake = self.planning_time(flying.since, self.fit.seconds(flying.plan.work))
        elif self._collected or self._plan.chunks:
            self.wake = now
        else:
            self._ended = None
            self.wake = inf if self._plan.wake is None else self._plan.wake

    # --- many rounds at once

    @property
    def flying(self) -> PlannedStep | None:
        """The step in flight between two rounds, of an engine that plans ahead."""
        return self._in_flight[0] if self._in_flight else None

    def leap_limit(self, most: int) -> int:
        """How many rounds `leap` may take now, up to `most`; 0 between planning and commit."""
        return leap_limit(self.scheduler, self._flying_plan, most) if len(self._in_flight) == self._ahead else 0

    def prompt_chunks(self, rounds: int, ends: Mapping[Request, int]) -> list[Chunk]:
        """The chunks of the incomplete prompt in flight that so many rounds compute."""
        return prompt_chunks(self.scheduler, self._flying_plan, rounds, ends)

    def leap(self, times: Sequence[Times], words: Words, ends: Mapping[Request, int], chunks: Sequence[Chunk]) -> Leap:
        """As many rounds as `times`, each planned and committed at its pair of times; `landed` follows."""
        return Leap(self.scheduler, self._flying_plan, times, words, ends=ends, chunks=chunks)

    def landed(self, leap: Leap, rounds: int) -> list[Tokens]:
        """Apply the first rounds of a leap, without statistics; returns the frames as `Leap.take`."""
        plan, frames = leap.take(rounds)
        self._ended = ended = leap.times[rounds - 1][1]
        self._in_flight = deque([] if plan is None else [PlannedStep(plan, ended)])
        self._collected = True
        if rounds < len(leap.times):
            self.wake = leap.times[rounds][0]
        else:
            self.finish(ended)
        return frames

    def rest(self, leap: Leap, rounds: int) -> Leap:
        """The other rounds of a leap of which so many were applied."""
        return leap.rest(rounds, self._flying_plan)

    @property
    def _flying_plan(self) -> StepPlan | None:
        return self._in_flight[0].plan if self._in_flight else None

    # --- reports

    def heartbeat(self, now: float, loading: int = 0) -> Heartbeat:
        """The numbers since the last heartbeat; from then on the scheduler plans with the fitted step time."""
        core, memory, model = self.scheduler, self.memory, self.fit.model
        memory.offload.prefill_seconds = model.prefill
        core.learn(model, self.fit.error)
        added, evicted = memory.keys.changes()
        recent = list(self._recent)
        self._recent.clear()
        return Heartbeat(
            steps=core.counters.steps,
            running=len(core.running),
            waiting=dict(core.waiting.counts),
            queued_tokens=core.queued_tokens(),
            oldest_wait=core.oldest_wait(now),
            pages_free=memory.pool.free,
            pages_cached=memory.pool.cached,
            preemptions=core.counters.preemptions,
            evicted_pages=memory.pool.evicted,
            lookup_tokens=core.counters.lookup_tokens,
            hit_tokens=core.counters.hit_tokens,
            step_time=[model.base, model.prefill, model.sequence, model.kv, model.context, float(model.observations)],
            recent=recent,
            evicted_idle_s=memory.pool.idle_seconds,
            host_pages=memory.offload.host_used,
            pages_out=memory.offload.pages_out,
            pages_in=memory.offload.pages_in,
            loading=loading,
            disk_pages=memory.offload.disk_used,
            disk_pages_out=memory.offload.disk_out,
            disk_pages_in=memory.offload.disk_in,
            restored_tokens=memory.offload.restored_tokens,
            recomputed_tokens=core.counters.recomputed_tokens,
            slack_tokens=sum(max(memory.covered(request) - request.wanted, 0) for request in core.running),
            shed_by=dict(core.counters.shed_by),
            debt_pages=core.admission.debt(core.running),
            remaining_tokens=core.admission.remaining_tokens(core.running),
            prefix_added=added,
            prefix_evicted=evicted,
        )
