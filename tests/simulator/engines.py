"""An engine small enough to run out of pages, and one as the tables of the simulator have it."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paceline_autoscaler.policies.replica_policy import ReplicaPolicy
from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import ScaleTarget
from paceline_core.objects import InferenceService, ResolvedService
from paceline_core.objects.defaults import resolve
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import KVLoad, LoadReport, StepTime, WorkerState
from paceline_planner.step_clock import FittedClock
from paceline_simulator.cluster import PoolPlan, StartTimes
from paceline_simulator.engine import STOPS, EngineSpec, Submission
from paceline_simulator.events import EventQueue
from paceline_simulator.policies import policy_of
from paceline_simulator.simulation import RunPlan, ServicePlan
from paceline_simulator.traces import TraceRequest
from paceline_workers.engine.scheduling import Request, SchedulerLimits
from paceline_workers.messages import Sampling, Tokens

MODEL = StepTime(base=0.013, prefill=6e-5, sequence=3e-5, kv=4e-8, context=3.5e-9, observations=1000)
REPORT = LoadReport(
    worker="chat-main-0",
    service="default/chat",
    revision="r1",
    pool="main",
    state=WorkerState.STARTING,
    slots=1,
    kv=KVLoad(page_tokens=1, total=1, free=1),
    step_time=MODEL,
    max_model_len=1,
)


@dataclass
class Client:
    """Notes first tokens and ends, by request and time."""

    events: EventQueue
    first: dict[str, float] = field(default_factory=dict)
    ends: dict[str, tuple[float, str]] = field(default_factory=dict)

    def on_first_token(self, submission: Submission) -> None:
        self.first[submission.request.id] = self.events.now

    def on_end(self, submission: Submission, frame: Tokens) -> None:
        self.ends[submission.request.id] = (self.events.now, frame.finish)


def spec(
    pages: int = 4000,
    *,
    seqs: int = 64,
    ahead: bool = True,
    leaps: bool = True,
    page: int = 16,
    step_tokens: int = 2048,
) -> EngineSpec:
    limits = SchedulerLimits(
        max_model_len=pages * page, vocab_size=1 << 31, page_tokens=page, max_seqs=seqs, step_tokens=step_tokens
    )
    return EngineSpec(FittedClock(MODEL), MODEL, limits, pages, ahead=ahead, leaps=leaps)


def submission(client: Client, name: str, prompt: int, output: int, letter: int = 7, most: int = 4096) -> Submission:
    request = Request(name, prompt, [letter] * prompt, max(most, output), Sampling(temperature=0.0), 0.0)
    request.stop_ids = STOPS
    return Submission(request, output, client)


def service(
    name: str = "chat", pools: tuple[str, ...] = ("main",), most: int = 40, **scaling: object
) -> ResolvedService:
    """A service with pools of up to `most` replicas and the promise TTFT p95 2 s, TPOT p95 100 ms."""
    return resolve(
        InferenceService.model_validate(
            {
                "metadata": {"name": name, "namespace": "default", "uid": name},
                "spec": {
                    "model": {"source": "builtin://demo", "servedName": name},
                    "runtime": {"name": "paceline"},
                    "engine": {"emulate": {"accelerator": "h100", "model": "qwen2.5-32b", "coldStart": "60s"}},
                    "classes": {"interactive": {"slo": {"ttft": {"p95": "2s"}, "tpot": {"p95": "100ms"}}}},
                    "pools": [
                        {"name": pool, "accelerator": "h100", "replicas": {"min": 1, "max": most}} for pool in pools
                    ],
                    "scaling": scaling,
                },
            }
        )
    )


def pool_plan(name: str = "main", lead_s: float = 20.0, made: EngineSpec | None = None, **fields: Any) -> PoolPlan:
    target = ScaleTarget(ObjectKey("default", "chat"), name)
    return PoolPlan(target, made or spec(), StartTimes.of(lead_s), **fields)


def run_plan(
    arrivals: Sequence[TraceRequest],
    policy: ReplicaPolicy | None = None,
    replicas: int = 1,
    pool: PoolPlan | None = None,
    **fields: Any,
) -> RunPlan:
    """One service with one pool and a fixed number of replicas, or the given policy."""
    pool = pool or pool_plan()
    own = {name: fields.pop(name) for name in ("metrics", "follow") if name in fields}
    plan = ServicePlan(
        service(),
        (pool,),
        {RequestClass.INTERACTIVE: arrivals},
        policy or policy_of(f"static:{replicas}"),
        {pool.target.pool: replicas},
        **own,
    )
    return RunPlan((plan,), **fields)
