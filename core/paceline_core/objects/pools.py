"""`spec.pools`: sets of equal replicas, each its own Deployment."""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import ApiModel, Label, LabelValue, NodeLabels, PoolName, Subdomain, bounded
from paceline_core.objects.pods import (
    Affinity,
    Annotations,
    Labels,
    ResourceRequirements,
    TopologySpreadConstraint,
    Volumes,
)

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
