"""InferenceService: one model, its latency targets, and where it may run."""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import (
    AS_SET,
    ApiModel,
    Count,
    Days,
    Duration,
    Label,
    LabelValue,
    Money,
    NodeLabels,
    PoolName,
    Subdomain,
    bounded,
    keyed,
)
from paceline_core.objects.metadata import Object
from paceline_core.objects.pods import (
    Affinity,
    Annotations,
    Labels,
    ResourceRequirements,
    TopologySpreadConstraint,
    Volumes,
)
from paceline_core.objects.service_runtime import Engine, Filter, Model, Runtime
from paceline_core.objects.status import ServiceStatus


class Quantiles(ApiModel):
    """A limit per quantile; each is its own target, with the rest (5 % for p95) as its error budget."""

    p50: Duration | None = None
    """Half of the requests stay below this. Example: 200ms."""
    p90: Duration | None = None
    """90 % of the requests stay below this. Example: 400ms."""
    p95: Duration | None = None
    """95 % of the requests stay below this. Example: 500ms."""
    p99: Duration | None = None
    """99 % of the requests stay below this. Example: 1s."""


class TTFT(Quantiles):
    """Limits of the time to first token per quantile, and what a prompt's length adds to them."""

    per1k_prompt_tokens: Duration | None = None
    """Added to each of these limits for every 1,000 tokens of the prompt, in proportion: without it a long prompt has
    to be answered as fast as a short one. Default: 0s. Example: 333ms."""


class SLO(ApiModel):
    """What is promised. Shed, failed and cut requests miss every target."""

    ttft: TTFT | None = None
    """Time to first token of a stream: from the request's last byte to the first content."""
    tpot: Quantiles | None = None
    """Time per output token after the first, averaged over one stream."""
    e2e: Quantiles | None = None
    """From the request's last byte to the answer's last byte; the one target of requests that do not stream.
    Default: ttft + tokens x tpot."""


class ServiceClass(ApiModel):
    """The promise and the limits of one class of requests."""

    slo: SLO = SLO()
    """Latency targets per quantile. Without any, the class is best effort."""
    availability: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of requests that must not fail or be shed, 0.5 to below 1. Default: 0.999."""
    slo_window: Days | None = None
    """Rolling window of the error budgets, in whole days. Default: 28d."""
    max_tokens: Annotated[int, Field(ge=1, le=1_048_576)] | None = None
    """Most output tokens a request may ask for, and the limit of one that asks for none.
    Default: 4096 (interactive), 8192 (batch), 16384 (offline)."""
    batch_window: Duration | None = None
    """How long an idle engine waits for company before it starts a step, at most 1s.
    Default: 3ms, 20ms, 40ms."""
    reserved_percent: Annotated[int, Field(ge=0, le=99)] | None = None
    """Share of a replica's KV pages and of its maxSeqs, in percent, that less urgent classes leave to this one. Not for
    offline, below which there is no class. Default: 0. Example: 25."""
    queue_limit: Count | None = None
    """Most requests waiting in the gateway; one more is refused with 503. Default: 256, 1024, 4096."""
    hold_timeout: Duration | None = None
    """Longest wait in the gateway for a worker, also while the service wakes from zero; then 504. From
    1ms to 24h. Default: 2m, 10m, 1h."""


class Classes(ApiModel):
    """One entry for each class that promises something; all three are served in any case."""

    interactive: ServiceClass = ServiceClass()
    """Somebody is waiting for each token. The class of requests that name none."""
    batch: ServiceClass = ServiceClass()
    """Waited for, but not token by token."""
    offline: ServiceClass = ServiceClass()
    """Whenever there is room."""


Role = Literal["both", "prefill", "decode"]
TolerationOperator = Literal["Equal", "Exists"]
TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

Replicas = Annotated[int, Field(ge=0, le=10_000)]


class Bounds(ApiModel):
    """Between which numbers the pool is scaled."""

    min: Replicas | None = None
    """Fewest replicas. Default: 1, or 0 with scaleToZero."""
    max: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Most replicas. Default: min, but at least 1."""


class Toleration(ApiModel):
    """A node taint that the pool's pods accept, as in a pod."""

    key: Annotated[str, Field(max_length=317)] | None = None
    """The taint's key; none with operator Exists means every taint."""
    operator: TolerationOperator | None = None
    """Equal (default) or Exists."""
    value: LabelValue | None = None
    """The taint's value, for Equal."""
    effect: TaintEffect | None = None
    """The taint's effect; none means all."""
    toleration_seconds: Annotated[int, Field(ge=0, le=2**31 - 1)] | None = None
    """How long a NoExecute taint is borne, in seconds. Default: for ever."""


class Pool(ApiModel):
    """Equal replicas on one kind of accelerator; becomes the Deployment <service>-<pool>."""

    name: PoolName
    """Name of the pool: 1 to 15 of a-z and 0-9, starting with a letter; `canary` is reserved. Example: main."""
    role: Role = "both"
    """both, or one half of a split service: prefill reads prompts, decode writes tokens. Default: both."""
    accelerator: Label
    """AcceleratorProfile or built-in accelerator that the replicas run on; cpu needs no GPU. No pod is made for a name
    that nobody knows. Example: h100."""
    gpus_per_replica: Annotated[int, Field(ge=0, le=64)] | None = None
    """GPUs that each replica asks Kubernetes for. Default: 1; 0 on cpu and when emulated."""
    replicas: Bounds = Bounds()
    """Between which numbers the pool is scaled."""
    spot: bool = False
    """Run on interruptible nodes; streams move to another replica when one is taken. Default: false."""
    node_selector: NodeLabels = {}
    """Node labels that the pods need besides the profile's, at most 16."""
    tolerations: Annotated[tuple[Toleration, ...], Field(max_length=16)] = ()
    """Node taints that the pods accept, at most 16."""
    resources: ResourceRequirements = ResourceRequirements()
    """CPU, memory and local disk of each worker, in the place of what paceline asks for."""
    affinity: Affinity | None = None
    """Nodes and pods near which, or apart from which, the pods shall run."""
    topology_spread_constraints: Annotated[tuple[TopologySpreadConstraint, ...], bounded(8)] = ()
    """How evenly the pods are spread over zones or nodes, at most 8 constraints."""
    priority_class_name: Subdomain | None = None
    """PriorityClass of the pods."""
    pod_labels: Labels = {}
    """Further labels of the pods, at most 16; paceline's own stand above them."""
    pod_annotations: Annotations = {}
    """Further annotations of the pods, at most 16; paceline's own stand above them."""
    volumes: Volumes = ()
    """Further volumes of the workers, at most 16."""


Strategy = Literal["rolling", "canary"]
GPUs = Literal["surge", "inPlace"]
AbortSignal = Literal["burn", "errors", "restarts"]

Percent = Annotated[int, Field(ge=1, le=100)]


class Canary(ApiModel):
    """Give the new revision a growing share of traffic, and go back if it does worse."""

    steps: Annotated[tuple[Percent, ...], bounded(10), AS_SET] = ()
    """Shares of traffic in percent, ascending. Default: [5, 25, 50, 100]."""
    window: Duration | None = None
    """How long each step is watched, from 1s to 24h. Default: 5m."""
    abort_on: Annotated[tuple[AbortSignal, ...], bounded(3), AS_SET] = ()
    """What ends the canary: burn (its SLO burn is above the old one's), errors (its failures are), restarts.
    Default: all three."""


class Rollout(ApiModel):
    """How a new revision replaces the old one."""

    strategy: Strategy = "rolling"
    """rolling replaces replica by replica (default); canary shifts traffic by steps and watches."""
    gpus: GPUs = "surge"
    """surge starts a new replica before an old one goes (default); inPlace stops first, where no GPU is spare."""
    canary: Canary | None = None
    """Settings of strategy canary."""
    drain_timeout: Duration | None = None
    """Longest time a leaving replica may take to finish its streams, from 1s to 24h. Default: 5m."""


Policy = Literal["slo", "advise", "queue", "concurrency", "kv", "fixed", "external"]


class ScaleToZero(ApiModel):
    """Let an idle service go to zero replicas; the next request is held while it wakes."""

    after: Duration | None = None
    """Idle time before the last replica goes, from 1s to 168h. Default: 15m."""


class Budget(ApiModel):
    """What scaling may use at most; the promise yields to it, and the status says so."""

    gpus: Annotated[int, Field(ge=0, le=100_000)] | None = None
    """Most GPUs of all replicas that exist, draining ones too. A rollout's surge may exceed it, unless rollout.gpus is
    inPlace. Default: no limit."""
    dollars_per_hour: Money | None = None
    """Highest price of all replicas together, in US dollars an hour; replicas.min runs even where it cannot pay.
    Default: no limit. Example: "40.00"."""


class Scaling(ApiModel):
    """What decides the number of replicas."""

    policy: Policy = "slo"
    """slo keeps the promise at least cost (default); advise only says what slo would do; queue, concurrency and kv
    follow one signal; fixed keeps min; external leaves the Deployments to an HPA or KEDA."""
    scale_to_zero: ScaleToZero | None = None
    """Go to zero replicas when idle; every pool's min must be 0. Default: never."""
    budget: Budget | None = None
    """What scaling may use at most. Default: no limit."""


class Tracing(ApiModel):
    """OpenTelemetry traces."""

    sample_ratio: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    """Share of requests traced that arrive without a trace of their own. Default: 0.

    Workers send to the collector that OTEL_EXPORTER_OTLP_ENDPOINT in runtime.env names, gateways to the one that the
    install names; who has none traces nothing.
    """


class Telemetry(ApiModel):
    """What is recorded about requests."""

    tracing: Tracing = Tracing()
    """OpenTelemetry traces; a request with a sampled traceparent is always traced."""
    log_prompts: bool = False
    """Write prompts and answers to the log. They may hold personal data. Default: false."""


class ServiceSpec(ApiModel):
    """What is wished."""

    model: Model
    """The model to serve."""
    runtime: Runtime = Runtime()
    """The program that serves it. Default: paceline's own worker."""
    engine: Engine = Engine()
    """Settings of the worker's engine."""
    classes: Classes = Classes()
    """The promise for each class of requests: interactive, batch, offline."""
    pools: Annotated[tuple[Pool, ...], bounded(8, least=1), keyed("name")]
    """Sets of equal replicas, 1 to 8; each becomes the Deployment <service>-<pool>.
    Example: [{name: main, accelerator: cpu}]."""
    scaling: Scaling = Scaling()
    """What decides the number of replicas, and within which cost."""
    rollout: Rollout = Rollout()
    """How a new revision replaces the old one."""
    filters: Annotated[tuple[Filter, ...], bounded(16), keyed("name", "stage")] = ()
    """Checks and changes on prompts and answers, in order, at most 16."""
    telemetry: Telemetry = Telemetry()
    """Traces and what may be logged."""


class InferenceService(Object):
    """One model, the latency it promises, and where it may run. The name has at most 40 characters."""

    kind: Literal["InferenceService"] = "InferenceService"
    """Always InferenceService."""
    spec: ServiceSpec
    """What is wished. Example: {model: {source: "builtin://demo"}, pools: [{name: main, accelerator: cpu}]}."""
    status: ServiceStatus = ServiceStatus()
    """What is so; written by operator and autoscaler."""
