"""One gateway on the virtual clock: production request machine, queues, routing, shedding, evacuation and verdicts.

It drives `RequestMachine` and carries out its actions as the proxy does, on engines instead of connections. What is
left out: HTTP, quota and billing, routes and fallbacks, circuit breakers' causes (no worker fails by itself), and the
silence of a stream inside its engine. Messages take no time.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cache

from paceline_core.errors import Code
from paceline_core.kube import Endpoint
from paceline_core.objects.resolved import ResolvedService, ResolvedTenant
from paceline_core.registry.enums import RequestClass, ResumeReason
from paceline_core.telemetry import Metrics
from paceline_core.wire import DemandReport, LoadReport
from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.config import HttpLimits
from paceline_gateway.queueing.queued_request import OUTPUT_WEIGHT, QueuedRequest
from paceline_gateway.request import events as e
from paceline_gateway.request.machine import RequestMachine
from paceline_gateway.request.prompt_size import PromptSize
from paceline_gateway.request.slo import Verdicts, evaluate_slos
from paceline_gateway.request.types import AT_WORKER, STREAMING, RequestRecord, Timeouts
from paceline_gateway.routing.evacuation_plan import EvacuationPlanner, MovableStream
from paceline_gateway.routing.model_lookup import Destination
from paceline_gateway.routing.policies import RoutingPolicy
from paceline_gateway.routing.prefix import prefix_keys
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.demand_report import service_demand
from paceline_gateway.services.service_state import Placement, ServiceState
from paceline_gateway.telemetry.service_metrics import ServiceMetrics
from paceline_simulator.engine import STOPS, SimulatedEngine, Submission
from paceline_simulator.events import EventQueue
from paceline_simulator.traces import BLOCK, UNIQUE, TraceRequest
from paceline_workers.engine.scheduling import Request
from paceline_workers.messages import Sampling, Tokens

BYTES_PER_TOKEN = 4
_GREEDY = Sampling(temperature=0.0)
_MOVED = e.Lost(harmless=True, suspect=False, reason=ResumeReason.EVACUATE, abort=None)
_KILLED = e.Lost(reason=ResumeReason.CONNECTION, abort=None)
_STATUS = {"queue_full": 503, "abort": 504, "refused": 400, "error": 500}
"""The worker's answer to a request that its engine ended without a token, by the reason."""


@dataclass(slots=True, eq=False)
class ClientRequest:
    """One request of the workload, and what became of it. `submission` is its last attempt at an engine.

    `sent` and `first`: when it was dispatched and when its first token came, the first time each.
    """

    number: int
    service: str
    request_class: RequestClass
    asked: TraceRequest
    machine: RequestMachine
    placement: Placement
    submission: Submission | None = None
    sent: float | None = None
    first: float | None = None
    record: RequestRecord | None = None
    verdicts: Verdicts = field(default_factory=list)


class SimulatedGateway:
    """`engines` by worker's name, of all services; `settled` is called with every request that has ended."""

    def __init__(  # noqa: PLR0913 - the parts around a gateway
        self,
        name: str,
        services: Iterable[ResolvedService],
        events: EventQueue,
        engines: Mapping[str, SimulatedEngine],
        *,
        policy: Callable[[], RoutingPolicy],
        settled: Callable[[ClientRequest], None],
        limits: HttpLimits | None = None,
    ) -> None:
        self.name = name
        self.limits = limits = limits or HttpLimits()
        self._events = events
        self._engines = engines
        self._settled = settled
        metrics = Metrics("gateway")
        self.services = {s.key: ServiceState(s, ServiceMetrics(metrics, s), limits, policy()) for s in services}
        self.open: dict[int, ClientRequest] = {}
        self._timeouts = Timeouts(limits.first_token_s, limits.stream_idle_timeout_s, limits.answer_s, limits.resume_s)
        self._moves = {key: EvacuationPlanner(limits.lookahead_s) for key in self.services}

    # --- requests

    def arrive(self, number: int, service: str, request_class: RequestClass, asked: TraceRequest) -> None:
        """A client's request: admit it, make room in its queue, and enqueue it. `number` is unique here."""
        now, state = self._events.now, self.services[service]
        tenant = asked.tenant or "default"
        admission = admitted(state.spec, request_class, asked, number)
        placement = state.place(number, _tenant(tenant), admission, 0.0, writes=True)
        machine = RequestMachine(now, self._timeouts)
        machine.on(e.Authenticated(tenant), now)
        machine.on(e.Admitted(placement.terms, placement.budget), now)
        queued = placement.queued
        queued.deadline = machine.limit
        request = self.open[number] = ClientRequest(number, service, request_class, asked, machine, placement)
        state.arrived(request_class, queued.prompt_tokens, tenant)
        while (shed := state.shed(queued, now)) is not None:
            self._on(self.open[shed.queued.id], e.Refused(shed.error))
            if shed.queued is queued:
                return
        self._on(request, e.Queued())

    def on_first_token(self, submission: Submission) -> None:
        request = self._owner(submission)
        request.first = self._events.now if request.first is None else request.first
        state, placement = self.services[request.service], request.placement
        self._on(request, e.Began())
        worker = state.pool.workers.get(request.machine.worker)
        if worker is not None:
            worker.began(placement.queued.id)
        self._dispatch(state)

    def on_end(self, submission: Submission, frame: Tokens) -> None:
        request, made = self._owner(submission), submission.request
        meter = request.machine.meter
        meter.prompt, meter.cached, meter.output, meter.counted = made.prompt_len, frame.cached, made.produced, True
        status = _STATUS.get(frame.finish)
        if status is None:
            self._on(request, e.Finished())
            return
        self._on(request, e.Answered(status))
        if request.record is None and request.machine.state in AT_WORKER:
            self._on(request, e.Finished(Code.HELD_TIMEOUT if status == 504 else None))

    def killed(self, engine: str) -> None:
        """A worker's process has ended: its requests lose it, and go on elsewhere if they may."""
        for request in [r for r in self.open.values() if r.machine.worker == engine and r.machine.state in AT_WORKER]:
            self._count(request)
            self._on(request, _KILLED)

    # --- workers

    def on_workers(self, service: str, endpoints: Iterable[Endpoint]) -> None:
        """The endpoints of a service, when they change."""
        state = self.services[service]
        state.pool.update(endpoints)
        self._dispatch(state)

    def on_report(self, service: str, report: LoadReport) -> None:
        """One line of a worker's load stream."""
        state = self.services[service]
        state.pool.on_report(report.worker, report, self._events.now)
        self._dispatch(state)

    def sweep(self) -> None:
        """What the gateway does a few times a second: deadlines, queues, evacuation."""
        now = self._events.now
        for request in list(self.open.values()):
            if request.machine.state is not STREAMING and request.machine.limit <= now:
                self._expire(request)
        for state in self.services.values():
            state.observe(now)
            self._dispatch(state)
            moves = self._moves[state.key]
            if leaving := moves.leaving(state.pool, now):
                self._evacuate(state, moves, leaving)

    def demand(self) -> DemandReport:
        """One line of the demand stream."""
        rows = tuple(service_demand(state, self._events.now) for state in self.services.values())
        return DemandReport(gateway=self.name, started="1970-01-01T00:00:00Z", services=rows)

    # --- the machine's actions

    def _on(self, request: ClientRequest, event: e.Event) -> None:
        changed = False
        for action in request.machine.on(event, self._events.now):
            changed = self._execute(request, action) or changed
        if changed:
            self._dispatch(self.services[request.service])

    def _execute(self, request: ClientRequest, action: e.Action) -> bool:
        """Execute an action; True if the queue changed and is dispatched afterwards."""
        now, queued = self._events.now, request.placement.queued
        dispatcher = self.services[request.service].dispatcher
        match action:
            case e.Enqueue():
                return self._enqueue(request, action)
            case e.Send(worker):
                self._send(request, worker)
            case e.ReleaseSlot():
                dispatcher.release(queued, now, suspect=action.suspect)
                return True
            case e.AbortUpstream():
                self._abort(request)
            case e.Dequeue():
                dispatcher.withdraw(queued)
            case e.Settle(record):
                self._settle(request, record)
            case _:
                pass  # what is said to the client
        return False

    def _enqueue(self, request: ClientRequest, action: e.Enqueue) -> bool:
        state, queued, machine = self.services[request.service], request.placement.queued, request.machine
        if action.resume:
            queued.resume(request.asked.prompt_tokens + machine.meter.output, ())
        worker = state.dispatcher.enqueue(queued, machine.limit, self._events.now, again=action.again)
        if worker is not None:
            self._on(request, e.Assigned(worker.name))
        return worker is None

    def _send(self, request: ClientRequest, worker: str) -> None:
        machine, admission = request.machine, request.placement.admission
        request.sent = self._events.now if request.sent is None else request.sent
        first = None if request.submission is None or not machine.begun else request.submission.request
        tokens = request.asked.tokens(request.number) if first is None else list(first.tokens)
        prompt, cls = request.asked.prompt_tokens, self.services[request.service].spec.classes[request.request_class]
        made = Request(
            id=f"{self.name}-{request.number}",
            prompt_len=prompt,
            tokens=tokens,
            max_tokens=admission.max_tokens,
            sampling=_GREEDY,
            arrival=self._events.now,
            request_class=request.request_class,
            stop_ids=STOPS,
            salt=request.asked.tenant,
        )
        if cls.tpot_s:
            made.tpot = cls.tpot_s
        limit_s = min(machine.limit - self._events.now, self._timeouts.first_token_s)
        keys = () if admission.prefix is None else tuple(admission.prefix.tokens(prompt))
        request.submission = Submission(made, request.asked.output_tokens, self, limit_s, keys)
        self._engines[worker].submit(request.submission)

    def _abort(self, request: ClientRequest) -> None:
        engine = self._engines.get(request.machine.worker)
        if engine is not None and request.submission is not None and engine.has(request.submission):
            engine.abort(request.submission.request.id)

    def _count(self, request: ClientRequest) -> None:
        """Count the tokens that a stream has brought, before it moves."""
        if request.submission is not None:
            self._engines[request.machine.worker].catch_up()
            request.machine.meter.output = request.submission.request.produced

    def _settle(self, request: ClientRequest, record: RequestRecord) -> None:
        state, queued = self.services[request.service], request.placement.queued
        name, meter = request.request_class, record.meter
        verdicts = evaluate_slos(record, state.spec.classes[name].targets)
        state.ended(record, verdicts, name, request.placement.admission.prompt)
        uncached = max(meter.prompt - meter.cached, 0)
        state.dispatcher.queues[name].settle(queued, uncached + OUTPUT_WEIGHT * meter.output)
        request.record, request.verdicts = record, verdicts
        del self.open[request.number]
        self._settled(request)

    def _dispatch(self, state: ServiceState) -> None:
        """Send waiting requests to workers with room."""
        if state.dispatcher.requests.total:
            state.dispatcher.run(self._now, self._assigned, self._late)

    def _now(self) -> float:
        return self._events.now

    def _assigned(self, queued: QueuedRequest, worker: Worker) -> None:
        self._on(self.open[queued.id], e.Assigned(worker.name))

    def _late(self, queued: QueuedRequest) -> None:
        self._expire(self.open[queued.id])

    def _expire(self, request: ClientRequest) -> None:
        held = self.services[request.service].dispatcher.held(self._events.now) > 0
        self._on(request, e.Expired(held=held, abort=None))

    # --- streams that move

    def _evacuate(self, state: ServiceState, moves: EvacuationPlanner, leaving: Iterable[Worker]) -> None:
        workers = {worker.name: worker for worker in leaving}
        streams: dict[Worker, list[MovableStream]] = {worker: [] for worker in workers.values()}
        for request in self.open.values():
            worker = workers.get(request.machine.worker)
            if worker is not None and request.machine.state in AT_WORKER and request.service == state.key:
                self._count(request)
                tokens = request.asked.prompt_tokens + request.machine.meter.output
                streams[worker].append(MovableStream(request.number, request.request_class, tokens))
        waiting = {name: len(queue) for name, queue in state.dispatcher.queues.items()}
        for numbers in moves.due(state.pool, streams, waiting, self._events.now).values():
            for number in numbers:
                self._move(self.open[number])

    def _move(self, request: ClientRequest) -> None:
        """The worker releases the stream, and it goes on elsewhere with the tokens so far."""
        self._abort(request)
        self._count(request)
        self._on(request, _MOVED)

    def _owner(self, submission: Submission) -> ClientRequest:
        return self.open[int(submission.request.id.rpartition("-")[2])]


def admitted(
    service: ResolvedService, request_class: RequestClass, asked: TraceRequest, number: int
) -> AdmittedRequest:
    """The request as admission would have it: its text is as long as its tokens, and equal where they are."""
    text = content(asked, number)
    size = PromptSize(len(text))
    keys = prefix_keys({"prompt": text}, asked.tenant or "default")
    limit = max(service.classes[request_class].max_tokens, asked.output_tokens)
    destination = Destination(service, service.model.served_name)
    return AdmittedRequest(destination, request_class, True, limit, text.encode(), keys, native=True, prompt=size)


def content(asked: TraceRequest, number: int) -> str:
    """BYTES_PER_TOKEN characters for each token of the prompt. `number` sets unique prompts apart."""
    length = asked.prompt_tokens * BYTES_PER_TOKEN
    if not asked.blocks:
        return (f"{UNIQUE + number:016x}" * (length // 16 + 1))[:length]
    blocks = (f"{block:08x}" * (BLOCK * BYTES_PER_TOKEN // 8) for block in asked.blocks)
    return "".join(blocks)[:length]


@cache
def _tenant(name: str) -> ResolvedTenant:
    return ResolvedTenant(
        namespace="simulation",
        name=name,
        services=("*",),
        classes=tuple(RequestClass),
        default_class=RequestClass.INTERACTIVE,
        weight=1,
        requests_per_minute=None,
        input_tokens_per_minute=None,
        output_tokens_per_minute=None,
        concurrency=None,
        monthly_tokens=None,
        monthly_dollars=None,
        on_store_failure="open",
    )
