"""`status` of an InferenceService. Each field has one writer: the operator or the autoscaler.

Strings here are open, not enums: an older CRD must accept the values of a newer writer.
"""

from typing import Annotated

from pydantic import Field

from paceline_core.objects.fields import (
    ApiModel,
    Count,
    Duration,
    Money,
    PoolName,
    Sentence,
    ShortText,
    Time,
    Total,
    bounded,
    keyed,
)
from paceline_core.objects.metadata import Conditions


class PoolState(ApiModel):
    """Replicas of one pool as the operator sees them."""

    name: PoolName
    """Name of the pool."""
    ready: Count = 0
    """Replicas that take requests."""
    starting: Count = 0
    """Replicas not yet ready."""
    draining: Count = 0
    """Replicas that finish their streams and leave."""


class Workload(ApiModel):
    """What runs. Written by the operator."""

    summary: ShortText = ""
    """Ready of desired replicas, like 3/4; then `emulated` where steps are padded, and the reason of a trouble."""
    model: Annotated[str, Field(max_length=512)] = ""
    """Source of the model of the pods that serve; that of the spec where none does."""
    served_name: ShortText = ""
    """Name that requests put into `model`, as the pods that serve know it."""
    revision: ShortText = ""
    """Revision of the pods that serve; that of the spec once a rollout is complete."""
    canary: ShortText = ""
    """Revision on trial; empty when there is none."""
    shares: Annotated[dict[str, Annotated[int, Field(ge=0, le=100)]], bounded(2)] = {}
    """Traffic in percent per track: stable, canary."""
    pools: Annotated[tuple[PoolState, ...], bounded(8), keyed("name")] = ()
    """Replicas per pool."""
    pool_names: Annotated[str, Field(max_length=256)] = ""
    """Names of the pools, separated by commas."""
    min_replicas: Count | None = None
    """Fewest replicas over all pools."""
    max_replicas: Count | None = None
    """Most replicas over all pools."""
    endpoint: Annotated[str, Field(max_length=512)] = ""
    """URL of the OpenAI API for this service."""
    emulated: bool = False
    """Steps are padded to a planned time, not computed."""


class PoolDesired(ApiModel):
    """Replicas that the autoscaler wants in one pool."""

    name: PoolName
    """Name of the pool."""
    desired: Count = 0
    """Replicas wanted."""


class ScalingState(ApiModel):
    """What the autoscaler decided last, and why. Written by the autoscaler."""

    desired: Count | None = None
    """Replicas wanted over all pools."""
    promise: ShortText = ""
    """The target nearest to breach, observed over promised, like: ttft p95 420/500ms."""
    burn: Annotated[float, Field(ge=0)] | None = None
    """Burn rate of the error budget that is spent fastest: the share of the last minute's requests that missed its
    target over the share that may miss it. Above 1 the budget will not last its window."""
    pools: Annotated[tuple[PoolDesired, ...], bounded(8), keyed("name")] = ()
    """Replicas wanted per pool."""
    decision: Sentence = ""
    """The last change in one sentence with numbers."""
    reason: ShortText = ""
    """Why, in one word: demand, attainment, scale_to_zero, missing_data ..."""
    limit: ShortText = ""
    """What kept the decision from its wish: none, min, max, budget, capacity or rate."""
    time: Time | None = None
    """When it was decided, RFC 3339 UTC."""


class TargetState(ApiModel):
    """One SLO target against what was observed. Written by the autoscaler."""

    cls: Annotated[ShortText, Field(alias="class")]
    """Class of requests."""
    metric: ShortText
    """ttft, tpot or e2e."""
    quantile: ShortText
    """p50, p90, p95 or p99."""
    target: Duration
    """What is promised, to a prompt of mean length where the limit grows with it."""
    observed: Duration | None = None
    """What the quantile was over the last minutes; absent when nothing was measured."""
    burn: Annotated[float, Field(ge=0)] | None = None
    """Burn rate of this target's error budget: the share of the last minute's requests that missed it over the share
    that may (0.05 of a p95). Above 1 the budget will not last its window."""


class Cost(ApiModel):
    """What the service costs now. Written by the autoscaler."""

    per_hour: Money | None = None
    """Price of all replicas in US dollars an hour; of the emulated GPUs where emulated."""


class ServiceStatus(ApiModel):
    """What is so, as against what is wished."""

    observed_generation: Total | None = None
    """Generation of the spec that the operator acted on."""
    conditions: Conditions = ()
    """Accepted, Ready, Progressing, ModelFits, Degraded (operator); SLOMet, SLOFeasible, MetricsFresh,
    ScalingActive, ScalingLimited, CapacityBlocked, Paused (autoscaler)."""
    workload: Workload = Workload()
    """What runs."""
    scaling: ScalingState = ScalingState()
    """What the autoscaler decided last, and why."""
    slo: Annotated[tuple[TargetState, ...], bounded(36), keyed("class", "metric", "quantile")] = ()
    """Every target against what was observed."""
    cost: Cost = Cost()
    """What the service costs now."""
