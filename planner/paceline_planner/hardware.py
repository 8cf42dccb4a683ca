"""An accelerator: the numbers of its data sheet, and the shares of those peaks that code reaches.

Peaks are dense (no sparsity), bandwidths one direction, the price is of one device. The shares that code reaches are in
`Efficiency`, one named factor each, so that a wrong prediction can be traced to one number. Known hole: clocks under a
power cap are not modelled. Also the element types of weights, KV cache and arithmetic, under the names that manifests
use.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum

from paceline_core.errors import InvalidInput
from paceline_core.objects.accelerator import AcceleratorSpec
from paceline_core.units import dollars, quantity


class Dtype(StrEnum):
    """An element type; `size` is its bytes."""

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    INT8 = "int8"

    @property
    def size(self) -> int:
        return _SIZES[self]


_SIZES = {Dtype.FP32: 4, Dtype.BF16: 2, Dtype.FP16: 2, Dtype.FP8: 1, Dtype.INT8: 1}

TERA = 1e12
GIGA = 1e9
_NVIDIA = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Efficiency:
    """The way from data sheet to program. Shares are of the peak, times in seconds.

    compute: share of peak FLOP/s in prefill. 0.55: whole prefills of today's engines reach 0.45 (BLIS, H100) to 0.6.
        The ceiling is 0.80: a bf16 product of 8192^3 on an H200 ran at 769 to 798 TFLOP/s. A promise is planned with
        what engines reach.
    attention: the same for causal prefill attention. 0.5 at 8k tokens: between Triton's tutorial kernel (469
        TFLOP/s on an H100) and cuDNN (582).
    bandwidth: share of peak bandwidth in decode. 0.896: a copy of 4.3 of 4.8 TB/s on the same device.
    step, layer, sequence: time that neither bound explains (launches, norms, sampling), per step, per layer and per
        decoding sequence. 126 us, 32 us and 4 us are the coefficients that BLIS inference-sim fitted to vLLM on H100.
    link: share of the link's bandwidth that an all-reduce reaches; latency: its seconds. 0.8 and 8 us are assumptions
        in the range that NCCL shows on NVLink.
    load: bytes a second from the node's cache volume into the device. 2 GB/s is one ordinary NVMe disk.
    """

    compute: float = 0.55
    attention: float = 0.50
    bandwidth: float = 0.896
    step: float = 126e-6
    layer: float = 32e-6
    sequence: float = 4e-6
    link: float = 0.8
    latency: float = 8e-6
    load: float = 2 * GIGA


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One device. `memory` in bytes, `bandwidth` and `link` in bytes a second, `flops` in FLOP/s by element type.

    `link` is to the other devices of the node, one direction; 0 if there is none. `price` is US dollars an hour or None
    if unknown, `watts` the power limit, `resource` a pod's extended resource if the device is a GPU.
    """

    name: str
    memory: int
    bandwidth: float
    flops: Mapping[Dtype, float] = field(hash=False)
    link: float = 0.0
    price: Decimal | None = None
    watts: int | None = None
    resource: str = _NVIDIA
    efficiency: Efficiency = Efficiency()

    def compute_rate(self, dtype: Dtype) -> float:
        """FLOP/s that dense products of this type reach; raises InvalidInput for a type it cannot compute in."""
        return self._peak(dtype) * self.efficiency.compute

    def attention_rate(self, dtype: Dtype) -> float:
        """FLOP/s that prefill attention reaches; raises InvalidInput as `compute_rate`."""
        return self._peak(dtype) * self.efficiency.attention

    def _peak(self, dtype: Dtype) -> float:
        if dtype not in self.flops:
            known = ", ".join(sorted(self.flops))
            raise InvalidInput("dtype", f"{self.name} does not compute in {dtype}; it knows {known}")
        return self.flops[dtype]

    @property
    def read_rate(self) -> float:
        """Bytes a second that streaming reads reach."""
        return self.bandwidth * self.efficiency.bandwidth


def from_profile(name: str, spec: AcceleratorSpec) -> Accelerator:
    """An AcceleratorProfile for the planner; the shares are `Efficiency`'s defaults.

    Nothing is taken from a built-in accelerator of the same name: a field that the profile omits is unknown.
    """
    peaks = {dtype: getattr(spec.teraflops, dtype.value) for dtype in Dtype}
    return Accelerator(
        name,
        quantity(spec.memory),
        float(quantity(spec.bandwidth)),
        {dtype: peak * TERA for dtype, peak in peaks.items() if peak is not None},
        link=float(quantity(spec.links.device)) if spec.links.device else 0.0,
        price=dollars(spec.dollars_per_hour) if spec.dollars_per_hour else None,
        watts=spec.watts,
        resource=spec.resource_name or _NVIDIA,
    )


def replica_price(accelerator: Accelerator, gpus: int = 1) -> Decimal | None:
    """US dollars an hour of one replica on `gpus` devices; None if the price of a device is unknown."""
    return None if accelerator.price is None else accelerator.price * gpus
