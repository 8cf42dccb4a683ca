"""The engine, the service and the workloads of the simulator's benchmarks.

The engine is like a 32B model in bf16 on two 80 GB GPUs: 13 ms a step, 60 us a prefill token, 30 us a sequence, 0.04 us
a KV token, 3.5 ns a pair of tokens; 278,000 tokens of KV memory, 256 slots, steps of 2,048 tokens, prefix cache on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.traces import folder

from paceline_autoscaler.policies.replica_policy import ReplicaPolicy
from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import ScaleTarget
from paceline_core.objects import InferenceService, ResolvedService
from paceline_core.objects.defaults import resolve
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_planner.step_clock import FittedClock
from paceline_simulator.cluster import PoolPlan, StartTimes
from paceline_simulator.engine import EngineSpec
from paceline_simulator.policies import policy_of
from paceline_simulator.simulation import RunPlan, ServicePlan
from paceline_simulator.traces import TraceRequest, read_trace, spread
from paceline_simulator.workloads import copies
from paceline_workers.engine.scheduling import SchedulerLimits

STEP_TIME = StepTime(base=0.013, prefill=6e-5, sequence=3e-5, kv=4e-8, context=3.5e-9, observations=1000)
KV_TOKENS = 278_000
PAGE_TOKENS = 64
LIMITS = SchedulerLimits(
    max_model_len=131_072,
    vocab_size=1 << 31,
    page_tokens=PAGE_TOKENS,
    max_seqs=256,
    step_tokens=2048,
    tpot=dict.fromkeys(RequestClass, 0.1),
)
TARGET = ScaleTarget(ObjectKey("default", "chat"), "main")
LEAD_S = 180.0
"""Seconds of a start."""
FILES = {
    "conv": "azure2023_conv.csv.gz",
    "code": "azure2023_code.csv.gz",
    "mooncake": "mooncake_conversation.jsonl.gz",
}


def scaled(step: StepTime, factor: float) -> StepTime:
    """A step time of `factor` times as many seconds."""
    seconds = step.model_dump(exclude={"observations"})
    return step.model_copy(update={name: factor * value for name, value in seconds.items()})


def engine(*, leaps: bool = True) -> EngineSpec:
    return EngineSpec(FittedClock(STEP_TIME), STEP_TIME, LIMITS, KV_TOKENS // PAGE_TOKENS, leaps=leaps)


def service(most: int = 40, pools: Sequence[Mapping[str, Any]] = ()) -> ResolvedService:
    """TTFT p99 2 s and a third of one for 1,000 prompt tokens, TPOT p99 100 ms; these pools, or one of 1 to `most`."""
    one = {"name": "main", "accelerator": "h100", "replicas": {"min": 1, "max": most}}
    return resolve(
        InferenceService.model_validate(
            {
                "metadata": {"name": "chat", "namespace": "default", "uid": "chat"},
                "spec": {
                    "model": {"source": "builtin://demo", "servedName": "chat"},
                    "runtime": {"name": "paceline"},
                    "classes": {
                        "interactive": {
                            "queueLimit": 4096,
                            "slo": {
                                "ttft": {"p99": "2s", "per1kPromptTokens": "333ms"},
                                "tpot": {"p99": "100ms"},
                            },
                        }
                    },
                    "pools": [*pools] or [one],
                },
            }
        )
    )


@dataclass(frozen=True, slots=True)
class Cell:
    """A workload: `times` copies of a log at random phases, for `span_s` seconds."""

    log: str
    times: int
    span_s: float
    seed: int = 1

    def requests(self) -> list[TraceRequest]:
        return copies(trace(self.log), self.times, Random(self.seed), span_s=self.span_s)


def trace(log: str) -> list[TraceRequest]:
    """A whole log; arrivals that it rounds to one instant are spread, requests beyond the context left out."""
    found = spread(read_trace(folder() / FILES[log]))
    return [request for request in found if request.prompt_tokens + request.output_tokens < LIMITS.max_model_len]


def plan(  # noqa: PLR0913 - what names a run
    requests: Sequence[TraceRequest],
    policy: ReplicaPolicy | int,
    replicas: int,
    *,
    leaps: bool = True,
    lead_s: float = LEAD_S,
    seed: int = 0,
    score: tuple[float, float] = (0.0, float("inf")),
) -> RunPlan:
    """One service with one pool, from so many replicas on."""
    pool = PoolPlan(TARGET, engine(leaps=leaps), StartTimes.of(lead_s))
    policy = policy_of(f"static:{policy}") if isinstance(policy, int) else policy
    made = ServicePlan(service(), (pool,), {RequestClass.INTERACTIVE: requests}, policy, {"main": replicas})
    return RunPlan((made,), seed=seed, score=score)
