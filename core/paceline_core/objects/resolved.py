"""The resolved objects for gateway, autoscaler and worker: every default filled in, in seconds and numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from paceline_core.objects.fields import Metric, Switch
from paceline_core.objects.pods import Affinity, ResourceRequirements, TopologySpreadConstraint, Volume
from paceline_core.objects.route import Backend, Escalation, Match, Pressure
from paceline_core.objects.service import AbortSignal, GPUs, Policy, Role, Strategy, Toleration
from paceline_core.objects.service_runtime import (
    Adapter,
    Batching,
    EnvVar,
    Filter,
    KVDtype,
    Quantization,
    RuntimeName,
    Speculation,
)
from paceline_core.registry.enums import RequestClass


@dataclass(frozen=True, slots=True)
class Target:
    """One SLO indicator: `quantile` (0.95) of the class's requests stay below their `limit`; the rest is the budget.

    The limit is `seconds`, and `per_prompt_token` more for each token of the prompt.
    """

    cls: RequestClass
    metric: Metric
    quantile: float
    seconds: float
    per_prompt_token: float = 0.0
    name: str = field(init=False, compare=False)
    """The value of the label `slo`: `ttft_p95`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", f"{self.metric}_p{round(self.quantile * 100)}")

    @property
    def objective(self) -> float:
        return self.quantile

    def limit(self, prompt_tokens: float) -> float:
        """The limit in seconds for a prompt of this length."""
        return self.seconds + self.per_prompt_token * prompt_tokens


@dataclass(frozen=True, slots=True)
class ResolvedClass:
    """SLOs and limits of one class. Lengths in tokens, times in seconds; `reserved` is a share, below 1."""

    name: RequestClass
    targets: tuple[Target, ...]
    availability: float
    slo_window_s: float
    max_tokens: int
    batch_window_s: float
    queue_limit: int
    hold_timeout_s: float
    reserved: float = 0.0
    tpot_s: float = field(init=False, compare=False)
    """The strictest promise on the time of an output token; 0 without one."""

    def __post_init__(self) -> None:
        promised = [target.seconds for target in self.targets if target.metric == "tpot"]
        object.__setattr__(self, "tpot_s", min(promised, default=0.0))


@dataclass(frozen=True, slots=True)
class ResolvedModel:
    """The model. `served_name` is its name for clients."""

    source: str
    revision: str | None
    served_name: str
    quantization: Quantization
    tokenizer: str | None
    adapters: tuple[Adapter, ...]


@dataclass(frozen=True, slots=True)
class ResolvedRuntime:
    """The serving program. `image` None: the install's own; `workload` names an existing Deployment."""

    name: RuntimeName
    image: str | None
    args: tuple[str, ...]
    env: tuple[EnvVar, ...]
    port: int | None
    workload: str | None


@dataclass(frozen=True, slots=True)
class ResolvedSpeculation:
    """Speculative decoding. `draft_model` is set only for method draft."""

    method: Speculation
    tokens: int
    draft_model: str | None


@dataclass(frozen=True, slots=True)
class ResolvedEmulation:
    """What is emulated; `cold_start_s` from start to ready."""

    accelerator: str
    model: str
    cold_start_s: float


@dataclass(frozen=True, slots=True)
class ResolvedEngine:
    """The engine's settings. `max_model_len` None: the model's own. The tensor degree is the pool's."""

    max_model_len: int | None
    max_seqs: int
    step_tokens: int
    kv_dtype: KVDtype
    page_tokens: int
    attention_window: int | None
    sink_tokens: int
    host_offload_bytes: int
    disk_offload_bytes: int
    prefix_cache: bool
    batching: Batching
    batch_invariant: bool
    warm_prefixes: tuple[str, ...]
    speculation: ResolvedSpeculation | None
    pipeline: int
    expert: int
    emulation: ResolvedEmulation | None


@dataclass(frozen=True, slots=True)
class PodSettings:
    """The user's settings for a pool's pods."""

    resources: ResourceRequirements = field(default_factory=ResourceRequirements)
    affinity: Affinity | None = None
    spread: tuple[TopologySpreadConstraint, ...] = ()
    priority_class: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolvedPool:
    """One pool. `gpus` is a replica's request to Kubernetes; `tensor` GPUs, real or emulated, share a layer."""

    name: str
    role: Role
    accelerator: str
    gpus: int
    tensor: int
    min: int
    max: int
    spot: bool
    node_selector: Mapping[str, str]
    tolerations: tuple[Toleration, ...]
    pod: PodSettings = field(default_factory=PodSettings)


@dataclass(frozen=True, slots=True)
class ResolvedScaling:
    """The settings that decide replicas. None: never goes to zero, or no limit."""

    policy: Policy
    scale_to_zero_after_s: float | None
    budget_gpus: int | None
    budget_dollars_per_hour: Decimal | None


@dataclass(frozen=True, slots=True)
class ResolvedRollout:
    """How a new revision replaces the old one. `steps` in percent of traffic."""

    strategy: Strategy
    gpus: GPUs
    steps: tuple[int, ...]
    window_s: float
    abort_on: frozenset[AbortSignal]
    drain_timeout_s: float


@dataclass(frozen=True, slots=True)
class ResolvedService:
    """An InferenceService with every tunable filled in. `classes` has all three classes."""

    namespace: str
    name: str
    uid: str
    revision: str
    model: ResolvedModel
    runtime: ResolvedRuntime
    engine: ResolvedEngine
    classes: Mapping[RequestClass, ResolvedClass]
    pools: tuple[ResolvedPool, ...]
    scaling: ResolvedScaling
    rollout: ResolvedRollout
    filters: tuple[Filter, ...]
    sample_ratio: float
    log_prompts: bool
    pause_until: str | None
    pause_reason: str
    key: str = field(init=False, compare=False)
    """`namespace/name`."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")

    @property
    def targets(self) -> tuple[Target, ...]:
        return tuple(target for cls in self.classes.values() for target in cls.targets)

    @property
    def emulated(self) -> bool:
        return self.engine.emulation is not None


@dataclass(frozen=True, slots=True)
class ResolvedTenant:
    """A Tenant with defaults filled in; a limit of None is no limit."""

    namespace: str
    name: str
    services: tuple[str, ...]
    classes: tuple[RequestClass, ...]
    default_class: RequestClass
    weight: int
    requests_per_minute: int | None
    input_tokens_per_minute: int | None
    output_tokens_per_minute: int | None
    concurrency: int | None
    monthly_tokens: int | None
    monthly_dollars: Decimal | None
    on_store_failure: Switch

    @property
    def budgeted(self) -> bool:
        return self.monthly_tokens is not None or self.monthly_dollars is not None

    def allows(self, service: str) -> bool:
        namespace = service.partition("/")[0]
        return not {"*", f"{namespace}/*", service}.isdisjoint(self.services)


@dataclass(frozen=True, slots=True)
class ResolvedCascade:
    """Ask `first`, a public model name; continue with the backends on these."""

    first: str
    escalate_on: frozenset[Escalation]


@dataclass(frozen=True, slots=True)
class ResolvedDegrade:
    """What is served instead under pressure that lasts `after_s`."""

    trigger: Pressure
    model: str | None
    max_tokens: int | None
    after_s: float


@dataclass(frozen=True, slots=True)
class ResolvedRoute:
    """An InferenceRoute with defaults filled in. Backends have a weight."""

    namespace: str
    name: str
    model: str
    backends: tuple[tuple[Backend, int], ...]
    matches: tuple[Match, ...]
    fallback: tuple[str, ...]
    attempts: int
    retry_budget: float
    cascade: ResolvedCascade | None
    degrade: ResolvedDegrade | None
