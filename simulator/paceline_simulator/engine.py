"""One replica's engine on the virtual clock: the production step cycle, scheduler and KV memory, with a step clock.

The engine plans, launches, collects and commits as the worker's loop does. With `ahead` a request that arrives while
the next step is already planned waits one step longer, and one that arrives while the loop waits for a step is read
only after that. What is left out: the API process (tokenizing, HTTP), the sampler, and the online fit of the step time;
the engine knows its model.

While no request waits and none computes its prompt, steps are leapt over (`engine.scheduling.leap`). Their effects are
applied when something looks at the engine or disturbs it: same times, same state. `leaps=False` takes every step, to
compare.
"""

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from operator import itemgetter
from typing import Protocol

from paceline_core.wire import KVLoad, LoadReport, PrefixDelta, StepTime, WorkerState
from paceline_planner.step_clock import FittedClock, StepClock
from paceline_planner.steptime import StepWork
from paceline_simulator.events import EventQueue
from paceline_workers.engine.backends.base import StepResult
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import Chunk, Request, SampledToken, Scheduler, SchedulerLimits, StepPlan
from paceline_workers.engine.scheduling.leap import Leap, Times
from paceline_workers.engine.step_cycle import PlannedStep, StepCycle
from paceline_workers.engine.steptime import KnownStepTime
from paceline_workers.messages import Tokens
from paceline_workers.server.load_report import PrefixLog, PrefixReader

END, WORD = 1, 2
"""The token that ends an answer, and every other token of it."""
STOPS = frozenset({END})
_FEWEST_STEPS, _MOST_STEPS = 8, 128
"""Steps of one leap: it reaches twice as far as the last one got, since each step costs the prediction of its time."""
_WORDS = _WORD, _END = SampledToken(WORD), SampledToken(END)


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The engine of a pool's replicas. `clock` gives the steps' seconds, `model` is what the engine predicts them with.

    `scheduler` makes the scheduler; the default is the production one with its usual policy.
    """

    clock: StepClock
    model: StepTime
    limits: SchedulerLimits
    pages: int
    prefix_cache: bool = True
    ahead: bool = True
    leaps: bool = True
    scheduler: Callable[[KVCacheManager, SchedulerLimits], Scheduler] = Scheduler


class TokenReceiver(Protocol):
    """Receives what an engine's client would see. Both may submit to the engine again."""

    def on_first_token(self, submission: "Submission") -> None:
        """Its first token since it was submitted."""
        ...

    def on_end(self, submission: "Submission", frame: Tokens) -> None:
        """Its last token, or the reason why there is none."""
        ...


@dataclass(slots=True)
class Submission:
    """A request for an engine, whose answer will have `output_tokens` in all, including those that it brings.

    `deadline_s`: for the first token, from its arrival here. `keys`: prefix keys with the tokens that each covers.
    """

    request: Request
    output_tokens: int
    client: TokenReceiver
    deadline_s: float = inf
    keys: tuple[tuple[str, int], ...] = ()
    begun: bool = field(default=False, init=False)
    length: int = field(init=False)
    """Tokens of the prompt and the whole answer."""

    def __post_init__(self) -> None:
        self.length = self.request.prompt_len + self.output_tokens


class SimulatedEngine:
    """A ready engine. `report` is the template of its load reports: worker, service, revision and pool."""

    def __init__(self, spec: EngineSpec, events: EventQueue, report: LoadReport) -> None:
        self.spec = spec
        self.name = report.worker
        self.memory = KVCacheManager(spec.pages, spec.limits.page_tokens, prefix_cache=spec.prefix_cache)
        self.scheduler = spec.scheduler(self.memory, spec.limits)
        self.scheduler.learn(spec.model)
        self.busy_s = 0.0
        self._cycle = StepCycle(self.scheduler, KnownStepTime(spec.model), ahead=spec.ahead, now=events.now)
        self._events = events
        self._knows = spec.clock == FittedClock(spec.model)
        self._submissions: dict[str, Submission] = {}
        self._ends: deque[float] = deque()
        self._collecting: PlannedStep | None = None
        self._inbox: list[Callable[[], object]] = []
        self._outbox: list[Tokens] = []
        self._leap: Leap | None = None
        self._reach = _FEWEST_STEPS
        self._leap_ends: list[float] = []
        """The end of the step in flight after each round of the leap."""
        self._version = 0
        self._prefixes = PrefixLog()
        self._reader = PrefixReader(self._prefixes)
        kv = KVLoad(page_tokens=spec.limits.page_tokens, total=spec.pages, free=spec.pages)
        fixed = {"slots": spec.limits.max_seqs, "kv": kv, "step_time": spec.model, "state": WorkerState.READY}
        self._report = report.model_copy(update={**fixed, "max_model_len": spec.limits.max_model_len})

    @property
    def open(self) -> int:
        """Requests that have not ended."""
        return len(self._submissions)

    @property
    def activity(self) -> tuple[int, int, int]:
        """Equal as long as its load report is the same: counts of steps, of open and of waiting requests."""
        steps = self.scheduler.counters.steps
        if self._leap is not None:
            steps += bisect_right(self._leap.times, self._events.now, key=itemgetter(0))
        return steps, len(self._submissions), len(self.scheduler.waiting)

    def has(self, submission: Submission) -> bool:
        """Whether the submission has not ended."""
        return self._submissions.get(submission.request.id) is submission

    def submit(self, submission: Submission) -> None:
        """Read a request now, or as soon as the step under way is over if the loop already waits for it."""
        self._submissions[submission.request.id] = submission
        self._prefixes.prompt([key for key, _ in submission.keys], 1)
        self._message(lambda: self._submit(submission))

    def abort(self, request_id: str) -> Request:
        """Stop a request's stream; returns it with the tokens that its client has. Raises KeyError if it has ended."""
        self.catch_up()
        submission = self._forget(request_id)
        self._message(lambda: self.scheduler.abort(request_id))
        return submission.request

    def drain(self) -> None:
        """Report that it drains, from now on."""
        self._report = self._report.model_copy(update={"state": WorkerState.DRAINING})

    def stop(self) -> None:
        """The process ends: nothing happens here any more, and no client gets another frame."""
        self.catch_up()
        self._version += 1
        self._submissions.clear()
        self._leap = self._collecting = None

    def catch_up(self) -> None:
        """Apply the rounds of a leap that are over by now."""
        leap, ends, now = self._leap, self._leap_ends, self._events.now
        if leap is None:
            return
        times = leap.times
        over = bisect_right(times, now, key=itemgetter(1))
        if over:
            before = self._ends[0] if self._ends else times[0][0]
            self._outbox += self._cycle.landed(leap, over)
            self.busy_s += ends[over - 1] - before
            self._reach = min(max(2 * over, _FEWEST_STEPS), _MOST_STEPS)
            self._ends = deque(ends[over - 1 : over]) if self.spec.ahead else deque()
        else:
            leap.unplan(0)
        if over == len(times):
            self._leap = None
        elif times[over][0] <= now:  # the loop waits for a step, with the next one planned
            self._leap = None
            self._round(times[over][0])
        elif over:
            self._leap, self._leap_ends = self._cycle.rest(leap, over), ends[over:]

    def load_report(self) -> LoadReport:
        """Its load now, with the prefix keys that came and went since the last report."""
        if self._leap is not None and self._events.now < self._leap.times[-1][1]:
            self._outbox += self._leap.until(self._events.now)  # a report tells nothing else of the rounds
        else:
            self.catch_up()
        self._prefixes.cached(*self.memory.keys.changes())
        self._report = self._report.model_copy(update={**self._load(), "prefix": self._reader.delta()})
        return self._report

    def remaining_load(self) -> LoadReport:
        """Its load now with the output still expected, which no other report here has, and without prefix keys."""
        self.catch_up()
        remaining = self.scheduler.admission.remaining_tokens(self.scheduler.running)
        own = {"prefix": PrefixDelta(), "remaining_tokens": remaining}
        return self._report.model_copy(update={**self._load(), **own})

    def _load(self) -> dict[str, object]:
        core, pool, kv = self.scheduler, self.memory.pool, self._report.kv
        if (kv.free, kv.cached) != (pool.free, pool.cached):
            kv = kv.model_copy(update={"free": pool.free, "cached": pool.cached})
        queued = core.queued_tokens()
        return {"running": len(core.running), "waiting": dict(core.waiting.counts), "queued_tokens": queued, "kv": kv}

    # --- the loop

    def _message(self, message: Callable[[], object]) -> None:
        self.catch_up()
        if self._collecting is not None:
            self._inbox.append(message)
            return
        self._leap = None
        self._version += 1
        message()
        self._go_on()
        self._emit()

    def _submit(self, submission: Submission) -> None:
        request, now = submission.request, self._events.now
        if request.id not in self._submissions:
            return  # aborted before it was read
        request.arrival = now
        request.deadline = now + submission.deadline_s if submission.deadline_s < inf else None
        if refusal := self.scheduler.submit(request):
            self._outbox.append(Tokens(request.id, 0, [], finish=refusal.finish, error=refusal.message))
        elif submission.keys:
            self.memory.note(request, submission.keys)

    def _go_on(self) -> None:
        """Between two rounds: leap, begin the next round, or wait until it is due."""
        now = self._events.now
        if self.spec.leaps and self._plan_leap():
            return
        if self._cycle.due(now):
            self._round(now)
        elif self._cycle.wake < inf:
            self._at(max(self._cycle.wake, now), self._go_on_alone)

    def _go_on_alone(self) -> None:
        self._round(self._events.now)
        self._emit()

    def _round(self, now: float) -> None:
        """Plan and launch, then wait for the step to collect, if there is one."""
        cycle = self._cycle
        self._outbox += self.scheduler.expire(now)
        step = cycle.plan(now)
        if step is not None:
            begin = self._ends[-1] if self._ends else step.since
            seconds = self.spec.clock.seconds(step.plan.work)
            self.busy_s += seconds
            self._ends.append(begin + seconds)
        self._collecting = cycle.collect(step, 0.0)
        if self._collecting is not None:
            self._at(max(self._ends.popleft(), now), self._collect)
            return
        cycle.finish(now)
        if cycle.wake < inf:
            self._at(max(cycle.wake, now), self._go_on_alone)

    def _collect(self) -> None:
        done, now = self._collecting, self._events.now
        if done is None:
            return
        self._collecting = None
        samples = self._samples([chunk.request for chunk in done.plan.chunks if chunk.samples])
        self._outbox += self._cycle.commit(done, StepResult(samples), now)
        self._cycle.finish(now)
        inbox, self._inbox = self._inbox, []
        for message in inbox:
            message()
        self._go_on()
        self._emit()

    def _samples(self, requests: Iterable[Request]) -> list[SampledToken]:
        """The next token of each; one that was aborted meanwhile gets another word."""
        found = self._submissions.get
        return [_END if (s := found(r.id)) and len(r.tokens) + 1 >= s.length else _WORD for r in requests]

    def _at(self, time: float, action: Callable[[], None]) -> None:
        """The engine has one next event; an earlier one is void."""
        self._version += 1
        self._events.at(time, self._run, self._version, action)

    def _run(self, version: int, action: Callable[[], None]) -> None:
        if version == self._version:
            action()

    def _emit(self) -> None:
        """Hand the frames on; the clients' reactions come after the next step was planned, as over a network."""
        found = self._submissions.get
        while self._outbox:
            frames, self._outbox = self._outbox, []
            for frame in frames:
                submission = found(frame.id)
                if submission is None or (submission.begun and not frame.finish):
                    continue
                if frame.ids and not submission.begun:
                    submission.begun = True
                    submission.client.on_first_token(submission)
                if frame.finish and frame.id in self._submissions:
                    submission.client.on_end(self._forget(frame.id), frame)

    def _forget(self, request_id: str) -> Submission:
        submission = self._submissions.pop(request_id)
        self._prefixes.prompt([key for key, _ in submission.keys], -1)
        return submission

    # --- leaps

    def _plan_leap(self) -> bool:
        """Leap as far as the scheduler can, at most to the last end of an answer; False if it cannot."""
        running, found = self.scheduler.running, self._submissions
        limit = self._cycle.leap_limit(self._reach)
        if not limit:
            return False
        left = {request: found[request.id].length - len(request.tokens) for request in running}
        ends = {request: missing - 1 for request, missing in left.items() if missing <= limit}
        if chunks := self._cycle.prompt_chunks(limit, ends):
            prompt = chunks[0].request
            ends.pop(prompt, None)
            if chunks[-1].samples and (end := len(chunks) - 2 + left[prompt]) < limit:
                ends[prompt] = end
        steps = limit if len(ends) < len(running) else max(ends.values()) + 1
        times, over = self._times(steps, ends, chunks)
        late = bisect_left(times, self.scheduler.next_deadline, key=itemgetter(0))
        if late < max(len(chunks), 1):  # a prompt may be late before it is computed
            times, ends = times[:late], {request: step for request, step in ends.items() if step < late}
        if not times:
            return False
        self._leap_ends = over[: len(times)]
        self._leap = self._cycle.leap(times, _WORDS, ends, chunks)
        self._at(self._leap.due, self._leapt)
        return True

    def _times(
        self, steps: int, ends: Mapping[Request, int], chunks: Sequence[Chunk]
    ) -> tuple[list[Times], list[float]]:
        """When each of the next rounds plans and commits, as `_round` and `_collect` would, and when its step ends.

        `ends`: the rounds in which answers end, `chunks`: those of the prompt in flight.
        """
        cycle, fit, clock = self._cycle, self._cycle.fit, self.spec.clock
        decode = clock.model.seconds if isinstance(clock, FittedClock) else partial(_seconds, clock)
        reads = {request: request.computed + 1 for request in self.scheduler.running}
        changes: dict[int, list[tuple[int, int]]] = {}
        if chunks:  # the prompt decodes after its last chunk
            prompt, step = chunks[0].request, len(chunks) - 1
            reads[prompt] = len(prompt.tokens) + 1 - step
            changes[step] = [(1, reads[prompt])]
        count = len(reads) - len(changes)
        kv_tokens = sum(reads.values()) - sum(read for found in changes.values() for _, read in found)
        for request, step in ends.items():
            changes.setdefault(step + 1, []).append((-1, -reads[request]))
        times: list[Times] = []
        over: list[float] = []
        flying = cycle.flying
        since = self._events.now if flying is None else flying.since
        end = since if flying is None else self._ends[0]
        predicted = 0.0 if flying is None else fit.seconds(flying.plan.work)
        for step in range(steps):
            for more, read in changes.get(step, ()):
                count, kv_tokens = count + more, kv_tokens + read
            planned = since if flying is None else cycle.planning_time(since, predicted)
            if step + 1 < len(chunks):
                work = StepPlan((chunks[step + 1],), visible=self.scheduler.costs.visible).work
                work = StepWork(work.prefill_tokens, work.context, count, kv_tokens + step * count)
                seconds, predicted = clock.seconds(work), fit.seconds(work)
            else:
                seconds = decode(prefill_tokens=0, sequences=count, kv_tokens=kv_tokens + step * count)
                predicted = seconds
                if not self._knows:
                    predicted = fit.seconds(StepWork(0, 0.0, count, kv_tokens + step * count))
            if flying is None:
                since = end = end + seconds
            else:
                since, end = max(end, planned), end + seconds
            times.append((planned, since))
            over.append(end)
        return times, over

    def _leapt(self) -> None:
        """First or last tokens come, or the leap is over."""
        leap, now = self._leap, self._events.now
        if leap is not None and now < leap.times[-1][1]:
            self._outbox += leap.until(now)
            self._at(leap.due, self._leapt)
        else:
            self.catch_up()
            self._go_on()
        self._emit()


def _seconds(clock: StepClock, prefill_tokens: int, sequences: int, kv_tokens: int) -> float:
    """Seconds of a step, as `StepTime.seconds`."""
    return clock.seconds(StepWork(prefill_tokens, 0.0, sequences, kv_tokens))
