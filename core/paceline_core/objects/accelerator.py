"""AcceleratorProfile: the planner's data about one kind of GPU. Cluster-scoped.

Built-in profiles for common GPUs and `cpu` apply where no object of that name exists.
"""

from typing import Annotated, Literal

from pydantic import Field

from paceline_core.objects.fields import RESOURCE_PATTERN, ApiModel, Bytes, Money, NodeLabels, Total
from paceline_core.objects.metadata import Conditions, Object

Teraflops = Annotated[float, Field(gt=0, le=1_000_000)]


class TeraflopsPerType(ApiModel):
    """Dense peak (no sparsity) in TFLOP/s per element type; what is not written is not supported."""

    fp32: Teraflops | None = None
    """Single precision. Example: 67."""
    tf32: Teraflops | None = None
    """TensorFloat-32. Example: 495."""
    bf16: Teraflops | None = None
    """bfloat16. Example: 989."""
    fp16: Teraflops | None = None
    """Half precision. Example: 989."""
    fp8: Teraflops | None = None
    """8-bit floating point. Example: 1979."""
    int8: Teraflops | None = None
    """8-bit integers, in tera-operations a second. Example: 1979."""
    int4: Teraflops | None = None
    """4-bit integers, in tera-operations a second."""
    fp4: Teraflops | None = None
    """4-bit floating point."""


class Links(ApiModel):
    """How devices are joined."""

    device: Bytes | None = None
    """Bytes a second from one device to the others of its node, one direction. Example: 450G."""
    node: Bytes | None = None
    """Bytes a second per device to other nodes, one direction. Example: 50G."""
    host: Bytes | None = None
    """Bytes a second between a device and its host's memory, one direction. Example: 64G."""
    devices_per_node: Annotated[int, Field(ge=1, le=256)] | None = None
    """Devices joined by the fast link in one node. Default: 8."""


class AcceleratorSpec(ApiModel):
    """The device as its data sheet has it."""

    memory: Bytes
    """Memory of one device in bytes. Example: 80G."""
    bandwidth: Bytes
    """Memory bandwidth of one device in bytes a second. Example: 3350G."""
    teraflops: TeraflopsPerType
    """Dense peak per element type in TFLOP/s."""
    links: Links = Links()
    """How devices are joined."""
    dollars_per_hour: Money | None = None
    """Price of one device in US dollars an hour. Default: unknown, which counts as nothing in costs and budgets, also
    where the name is a built-in accelerator's. Example: "2.50"."""
    watts: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Power of one device under load. Example: 700."""
    resource_name: Annotated[str, Field(pattern=RESOURCE_PATTERN, max_length=317)] | None = None
    """Extended resource that pods ask for. Default: nvidia.com/gpu."""
    node_selector: NodeLabels = {}
    """Labels of the nodes that have it, at most 16. Example: {nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3}."""


class AcceleratorStatus(ApiModel):
    """What is so. Written by the operator."""

    observed_generation: Total | None = None
    """Generation of the spec that the operator judged."""
    conditions: Conditions = ()
    """Accepted: whether the profile is used."""


class AcceleratorProfile(Object):
    """What the planner must know about one kind of GPU. One named like a built-in accelerator replaces all of it."""

    kind: Literal["AcceleratorProfile"] = "AcceleratorProfile"
    """Always AcceleratorProfile."""
    spec: AcceleratorSpec
    """The device as its data sheet has it."""
    status: AcceleratorStatus = AcceleratorStatus()
    """What is so; written by the operator."""

    @property
    def namespace(self) -> str:
        """Empty: profiles belong to the cluster."""
        return ""
