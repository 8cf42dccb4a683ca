"""Gateways' routing and workers' schedulers, the very objects, on a virtual clock; a step takes what the model says.

Calls arrive at the gateways in turn. Each gateway has a fleet and a queue, first come, first served; each worker has
the engine's scheduler, pages and key book, and tells every gateway how it is and which keys came and went, every
REPORT_S. What is left out: the network, tokenizing, and answers' content (a later turn's text of an earlier answer is
never found cached, whoever computed it).
"""

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from math import inf
from typing import Any, ClassVar

from benchmarks.harness import quantile
from benchmarks.routing.policies import Name, make
from benchmarks.scheduling.simulation import END, GREEDY, MAX_TOKENS, SEQUENCES, STEP_TOKENS, WORD, Machine
from benchmarks.scheduling.traces import BLOCK, Call

from paceline_core.kube import Endpoint
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import KVLoad, LoadReport, PrefixKeys, WorkerState
from paceline_gateway.routing.policies import RoutingRequest
from paceline_gateway.routing.prefix import prefix_keys
from paceline_gateway.routing.worker import RAMP_S, Worker
from paceline_gateway.routing.worker_pool import WorkerPool
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling import (
    Request,
    SampledToken,
    Scheduler,
    SchedulerLimits,
    StepPlan,
    WeightedShares,
)
from paceline_workers.engine.scheduling.admission import Forecast
from paceline_workers.engine.scheduling.preemption import cheapest
from paceline_workers.server.load_report import PrefixLog, PrefixReader

REPORT_S = 0.25
LOOKAHEAD_S = 0.5
WINDOW_S = 60.0
BYTES_PER_TOKEN = 4
SERVICE = "sim/chat"


@dataclass(frozen=True, slots=True)
class Way:
    """One way to route, and at most so many sequences at a worker at once, for so many seconds.

    `leaves`: when the first worker is drained, if it is; `joins`: when one more comes, with nothing cached.
    """

    policy: Name
    gateways: int = 1
    sequences: int = SEQUENCES
    until: float = inf
    leaves: float = inf
    joins: float = inf


@dataclass(slots=True)
class Job:
    """One call under way."""

    number: int
    at: float
    call: Call
    prefix: PrefixKeys | None
    ask: RoutingRequest
    tenant: str = ""
    request: Request | None = None
    worker: Worker | None = None
    gateway: "Front | None" = None


@dataclass(slots=True)
class Outcome:
    """Of one run: sorted times to first token, cached and all prompt tokens, each worker's seconds of work by window.

    Work is what steps take beyond the fixed part that each has, however little is in it.
    """

    ttft: list[float] = field(default_factory=list)
    cached: int = 0
    prompts: int = 0
    work: list[dict[int, float]] = field(default_factory=list)
    busy: float = 0.0
    seconds: float = 0.0

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were found cached."""
        return self.cached / self.prompts

    @property
    def mean(self) -> float:
        """Mean TTFT."""
        return sum(self.ttft) / len(self.ttft)

    def quantile(self, share: float) -> float:
        """TTFT that this share stays below."""
        return quantile(self.ttft, share)

    @property
    def imbalance(self) -> float:
        """The busiest worker's work over the mean."""
        return _ratio([sum(windows.values()) for windows in self.work])

    @property
    def worst_window(self) -> float:
        """The same within the worst window; the first and the last are not whole and left out."""
        last = max(max(windows, default=0) for windows in self.work)
        return max((_ratio([w.get(number, 0.0) for w in self.work]) for number in range(1, last)), default=1.0)

    @property
    def utilization(self) -> float:
        """Share of all workers' time spent in steps."""
        return self.busy / (len(self.work) * self.seconds)


class Engine:
    """One worker: its scheduler, and the step under way."""

    def __init__(self, name: str, machine: Machine, way: Way) -> None:
        self.name = name
        self.machine = machine
        self.gateways = way.gateways
        self.sequences = way.sequences
        self.memory = KVCacheManager(machine.pages, machine.page_tokens)
        limits = SchedulerLimits(
            max_model_len=machine.context,
            vocab_size=1 << 31,
            page_tokens=machine.page_tokens,
            max_seqs=way.sequences,
            step_tokens=STEP_TOKENS,
            max_waiting=1 << 20,
        )
        forecast = Forecast(machine.context)
        self.core = Scheduler(self.memory, limits, WeightedShares(), choose=cheapest, forecast=forecast)
        self.core.learn(machine.model)
        self.plan: StepPlan | None = None
        self._board = PrefixLog()
        self._reader = PrefixReader(self._board)
        self.jobs: dict[str, Job] = {}

    def submit(self, job: Job, now: float) -> None:
        """A dispatched call arrives."""
        tokens = job.call.tokens()
        job.request = Request(
            id=f"r{job.number}",
            prompt_len=len(tokens),
            tokens=tokens,
            max_tokens=max(MAX_TOKENS, job.call.output),
            sampling=GREEDY,
            arrival=now,
            request_class=job.ask.request_class,
            stop_ids=frozenset({END}),
        )
        if refusal := self.core.submit(job.request):
            raise ValueError(refusal)
        if job.prefix is not None:
            self.memory.note(job.request, job.prefix.tokens(len(tokens)))
            self._board.prompt(job.ask.keys, 1)
        self.jobs[job.request.id] = job

    def step(self, now: float) -> float | None:
        """Begin the next step; when it ends, or None if there is nothing to do."""
        plan = self.core.step(now)
        if not plan.chunks:
            return plan.wake
        self.plan = plan
        return now + self.machine.seconds(plan)

    def commit(self, now: float) -> list[Request]:
        """End the step; requests whose first token it brought, and those that it ended, in one list."""
        plan, self.plan = self.plan, None
        if plan is None:
            return []
        sampled = [chunk.request for chunk in plan.chunks if chunk.samples]
        self.core.commit(plan, [self._draw(request) for request in sampled], now)
        return [request for request in sampled if request.produced == 1 or self.over(request)]

    def end(self, request: Request) -> None:
        """Its last token was returned."""
        self._board.prompt(self.jobs.pop(request.id).ask.keys, -1)

    def over(self, request: Request) -> bool:
        """All of its answer is there."""
        return request.produced >= self.jobs[request.id].call.output

    def report(self) -> LoadReport:
        """What it tells gateways."""
        self._board.cached(*self.memory.keys.changes())
        return LoadReport(
            worker=self.name,
            service=SERVICE,
            revision="r1",
            pool="main",
            state=WorkerState.READY,
            slots=self.sequences,
            running=len(self.core.running),
            waiting=dict(self.core.waiting.counts),
            queued_tokens=self.core.queued_tokens(),
            kv=KVLoad(
                page_tokens=self.machine.page_tokens,
                total=self.memory.pool.total,
                free=self.memory.pool.free,
                cached=self.memory.pool.cached,
            ),
            step_time=self.machine.model,
            max_model_len=self.machine.context,
            gateways=self.gateways,
            prefix=self._reader.delta(),
        )

    def _draw(self, request: Request) -> SampledToken:
        return SampledToken(END if request.produced + 1 >= self.jobs[request.id].call.output else WORD)


class Front:
    """One gateway: its fleet and its queue."""

    def __init__(self, way: Way, number: int, engines: Sequence[Engine]) -> None:
        policy = make(way.policy, lookahead_s=LOOKAHEAD_S, seed=number)
        self.fleet = WorkerPool(policy, silence_s=1e9, lookahead_s=LOOKAHEAD_S, prefix_bytes=1 << 25)
        self.exist(engines)
        self.queue: deque[Job] = deque()

    def exist(self, engines: Iterable[Engine]) -> None:
        """These are the workers from now on; who is not among them finishes what it has."""
        self.fleet.update(Endpoint(e.name, "main", "stable", "r1", "10.0.0.1", 1, ready=True) for e in engines)

    def arrive(self, job: Job, now: float) -> None:  # noqa: ARG002 - for lines that count time
        """A call comes."""
        self.queue.append(job)

    def began(self, job: Job, now: float) -> None:  # noqa: ARG002 - as above
        """Its first token came."""
        if job.worker is not None:
            job.worker.began(job.number)

    def ended(self, job: Job, now: float) -> None:
        """Its last token came."""
        if job.worker is not None:
            job.worker.give(job.number, now)

    def dispatch(self, now: float) -> list[Job]:
        """Everybody who can go."""
        gone = []
        while self.queue:
            job = self.queue[0]
            pick = self.fleet.assign(job.number, job.ask, now, stream=True)
            if pick is None:
                break
            self.queue.popleft()
            job.worker, job.gateway = pick.worker, self
            gone.append(job)
        return gone


class Simulation:
    """All of it; `run` once, until the last call has ended or the way's time is over."""

    front: ClassVar[type[Front]] = Front

    def __init__(self, calls: Sequence[Call], machine: Machine, way: Way, workers: int, rate: float) -> None:
        more = way.joins < inf
        self.engines = [Engine(f"worker-{number}", machine, way) for number in range(workers + more)]
        self.fronts = [self.front(way, number, self.engines[:workers]) for number in range(way.gateways)]
        self.outcome = Outcome(work=[{} for _ in self.engines])
        self._jobs = self.made(calls, rate)
        self._way = way
        self._until = way.until
        self._by_name = {engine.name: number for number, engine in enumerate(self.engines)}
        self._events: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._order = count()
        self._left = len(self._jobs)
        self.now = 0.0

    def made(self, calls: Sequence[Call], rate: float) -> list[Job]:
        """What arrives, and when."""
        return jobs(calls, rate)

    def run(self) -> Outcome:
        """All of it."""
        for engine in self.engines:
            for front in self.fronts:
                front.fleet.on_report(engine.name, engine.report(), -RAMP_S)
            self._at(REPORT_S * self._by_name[engine.name] / len(self.engines), self._report, engine)
        for job in self._jobs:
            self._at(job.at, self._arrive, job)
        for time in (self._way.leaves, self._way.joins):
            if time < inf:
                self._at(time, self._change, None)
        while self._left and self.now < self._until:
            self.now, _, do, what = heapq.heappop(self._events)
            do(what)
        self.outcome.ttft.sort()
        self.outcome.seconds = self.now
        return self.outcome

    def _at(self, time: float, do: Callable[[Any], None], what: Any) -> None:
        heapq.heappush(self._events, (time, next(self._order), do, what))

    def _change(self, _: None) -> None:
        """Who leaves and who joins, has or is."""
        gone, come = self.now >= self._way.leaves, self._way.joins < inf and self.now < self._way.joins
        for front in self.fronts:
            front.exist(self.engines[int(gone) : len(self.engines) - come])

    def _arrive(self, job: Job) -> None:
        front = self.fronts[job.number % len(self.fronts)]
        front.arrive(job, self.now)
        self._dispatch(front)

    def _dispatch(self, front: Front) -> None:
        for job in front.dispatch(self.now):
            if job.worker is not None:
                engine = self.engines[self._by_name[job.worker.name]]
                engine.submit(job, self.now)
                self._go(engine)

    def _go(self, engine: Engine) -> None:
        if engine.plan is None and (end := engine.step(self.now)) is not None:
            self._at(end, self._stepped, (engine, self.now))

    def _stepped(self, what: tuple[Engine, float]) -> None:
        engine, began = what
        if engine.plan is not None:
            work, window = self.outcome.work[self._by_name[engine.name]], int(self.now / WINDOW_S)
            work[window] = work.get(window, 0.0) + self.now - began - engine.machine.model.base
            self.outcome.busy += self.now - began
        fronts = {}
        for request in engine.commit(self.now):
            front = self._take(engine, request)
            fronts[id(front)] = front
        self._go(engine)
        for front in fronts.values():
            self._dispatch(front)

    def _take(self, engine: Engine, request: Request) -> Front:
        job = engine.jobs[request.id]
        if job.worker is None or job.gateway is None:
            raise RuntimeError("a request without a worker")
        if request.produced == 1:
            job.gateway.began(job, self.now)
            self.outcome.ttft.append(self.now - job.at)
            self.outcome.cached += request.cached
            self.outcome.prompts += request.prompt_len
        if engine.over(request):
            job.gateway.ended(job, self.now)
            engine.end(request)
            self._left -= 1
        return job.gateway

    def _report(self, engine: Engine) -> None:
        report = engine.report()
        for front in self.fronts:
            front.fleet.on_report(engine.name, report, self.now)
            self._dispatch(front)
        self._at(self.now + REPORT_S, self._report, engine)


def jobs(calls: Sequence[Call], rate: float) -> list[Job]:
    """Calls with their keys, arriving `rate` times as fast as logged."""
    made = []
    mean = sum(call.output for call in calls) // len(calls)
    for number, call in enumerate(calls):
        keys = prefix_keys({"prompt": text(call)}, "tenant")
        told, size = ((), 0) if keys is None else (keys.keys, keys.size)
        ask = RoutingRequest(call.prompt, RequestClass.INTERACTIVE, mean, told, size)
        made.append(Job(number, call.at / rate, call, keys, ask))
    return made


def text(call: Call) -> str:
    """As many bytes as its tokens have, equal where they are."""
    blocks = (f"{block:08x}" * (BLOCK * BYTES_PER_TOKEN // 8) for block in call.blocks)
    return "".join(blocks)[: call.prompt * BYTES_PER_TOKEN]


def _ratio(seconds: Sequence[float]) -> float:
    mean = sum(seconds) / len(seconds)
    return max(seconds) / mean if mean else 1.0
