"""Users' settings for a pool's pods: resources, placement, labels and volumes, as in a pod's own spec.

No volume reaches the node's file system, so the pods meet the restricted pod standard. The values that paceline sets
itself (its labels, mounts and node labels) take precedence.
"""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import (
    ApiModel,
    Bytes,
    Cores,
    Label,
    LabelKey,
    LabelValue,
    MountPath,
    Subdomain,
    bounded,
    keyed,
)

Labels = Annotated[dict[str, LabelValue], bounded(16)]
Annotations = Annotated[dict[str, Annotated[str, Field(max_length=4096)]], bounded(16)]
Values = Annotated[tuple[LabelValue, ...], bounded(16)]
NodeOperator = Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
LabelOperator = Literal["In", "NotIn", "Exists", "DoesNotExist"]
Weight = Annotated[int, Field(ge=1, le=100)]


class ResourceAmounts(ApiModel):
    """CPU, memory and local disk of a worker's container."""

    cpu: Cores | None = None
    """Cores. Example: 500m or 4."""
    memory: Bytes | None = None
    """Bytes of memory. Example: 16Gi."""
    ephemeral_storage: Annotated[Bytes | None, Field(alias="ephemeral-storage")] = None
    """Bytes of local disk. Example: 50Gi."""


class ResourceRequirements(ApiModel):
    """What a worker asks for and what it may use at most; GPUs come from gpusPerReplica."""

    requests: ResourceAmounts = ResourceAmounts()
    """What the scheduler sets aside. Default of each: what the model and the engine's settings need."""
    limits: ResourceAmounts = ResourceAmounts()
    """What a worker may use at most. Default of memory: as docs/install.md says; none of the others."""


class NodeSelectorRequirement(ApiModel):
    """A demand on a node's labels."""

    key: LabelKey
    """The label's key. Example: topology.kubernetes.io/zone."""
    operator: NodeOperator
    """How key and values relate."""
    values: Values = ()
    """Values for In and NotIn, one number for Gt and Lt."""


class NodeSelectorTerm(ApiModel):
    """Demands that a node must meet together."""

    match_expressions: Annotated[tuple[NodeSelectorRequirement, ...], bounded(16, 1)]
    """The demands."""


class NodeSelector(ApiModel):
    """Terms of which a node must meet one."""

    node_selector_terms: Annotated[tuple[NodeSelectorTerm, ...], bounded(8, 1)]
    """The terms."""


class PreferredSchedulingTerm(ApiModel):
    """A term that a node should meet, with its weight among others."""

    weight: Weight
    """1 to 100."""
    preference: NodeSelectorTerm
    """The term."""


class NodeAffinity(ApiModel):
    """Nodes that the pods need or prefer, as in a pod."""

    required: Annotated[NodeSelector | None, Field(alias="requiredDuringSchedulingIgnoredDuringExecution")] = None
    """Nodes that they need."""
    preferred: Annotated[
        tuple[PreferredSchedulingTerm, ...], bounded(8), Field(alias="preferredDuringSchedulingIgnoredDuringExecution")
    ] = ()
    """Nodes that they prefer."""


class LabelSelectorRequirement(ApiModel):
    """A demand on a pod's labels."""

    key: LabelKey
    """The label's key."""
    operator: LabelOperator
    """How key and values relate."""
    values: Values = ()
    """Values for In and NotIn."""


class LabelSelector(ApiModel):
    """Pods by their labels; every demand must hold."""

    match_labels: Labels = {}
    """Labels with these values."""
    match_expressions: Annotated[tuple[LabelSelectorRequirement, ...], bounded(16)] = ()
    """Further demands."""


class PodAffinityTerm(ApiModel):
    """Pods near which, or apart from which, the pool's pods shall be."""

    label_selector: LabelSelector
    """Which pods."""
    topology_key: LabelKey
    """The node label whose values tell places apart. Example: kubernetes.io/hostname."""
    namespaces: Annotated[tuple[Label, ...], bounded(16)] = ()
    """Namespaces of these pods. Default: the service's own."""


class WeightedPodAffinityTerm(ApiModel):
    """A term that should hold, with its weight among others."""

    weight: Weight
    """1 to 100."""
    pod_affinity_term: PodAffinityTerm
    """The term."""


class PodAffinity(ApiModel):
    """Pods that the pool's pods need or prefer to be near, or apart from, as in a pod."""

    required: Annotated[
        tuple[PodAffinityTerm, ...], bounded(8), Field(alias="requiredDuringSchedulingIgnoredDuringExecution")
    ] = ()
    """What they need."""
    preferred: Annotated[
        tuple[WeightedPodAffinityTerm, ...], bounded(8), Field(alias="preferredDuringSchedulingIgnoredDuringExecution")
    ] = ()
    """What they prefer."""


class Affinity(ApiModel):
    """Where the pods shall run, as in a pod."""

    node_affinity: NodeAffinity | None = None
    """Nodes, by their labels."""
    pod_affinity: PodAffinity | None = None
    """Near these pods."""
    pod_anti_affinity: PodAffinity | None = None
    """Apart from these pods."""


class TopologySpreadConstraint(ApiModel):
    """How evenly the pods are spread over places, as in a pod."""

    max_skew: Annotated[int, Field(ge=1, le=1000)]
    """How many pods more one place may have than another."""
    topology_key: LabelKey
    """The node label whose values tell places apart. Example: topology.kubernetes.io/zone."""
    when_unsatisfiable: Literal["DoNotSchedule", "ScheduleAnyway"]
    """Wait, or run unevenly."""
    label_selector: LabelSelector | None = None
    """The pods that are counted. Default: those of this pool."""


class ClaimVolume(ApiModel):
    """A PersistentVolumeClaim of the service's namespace."""

    claim_name: Subdomain
    """Its name."""


class ObjectVolume(ApiModel):
    """A ConfigMap or a Secret of the service's namespace, as files."""

    name: Subdomain
    """Its name."""
    optional: bool | None = None
    """Start without it where it is missing. Default: false."""


class EmptyVolume(ApiModel):
    """A folder that begins empty and goes with the pod."""

    medium: Literal["Memory"] | None = None
    """Memory keeps it in memory, which counts against the memory limit. Default: the node's disk."""
    size_limit: Bytes | None = None
    """How large it may become. Example: 8Gi."""


class Volume(ApiModel):
    """A volume of the worker's container; exactly one source is set."""

    name: Label
    """Name of the volume; worker, trust, tmp, cache and pages are paceline's."""
    mount_path: MountPath
    """Where the worker finds it. Example: /models."""
    read_only: bool = True
    """Mount it read-only. Default: true."""
    persistent_volume_claim: ClaimVolume | None = None
    """A PersistentVolumeClaim."""
    config_map: ObjectVolume | None = None
    """A ConfigMap."""
    secret: ObjectVolume | None = None
    """A Secret."""
    empty_dir: EmptyVolume | None = None
    """A folder that begins empty; set readOnly to false."""


Volumes = Annotated[tuple[Volume, ...], bounded(16), keyed("name")]
SOURCES = ("persistentVolumeClaim", "configMap", "secret", "emptyDir")
