"""The accelerators that paceline knows, from their data sheets, and the shares of those peaks that code reaches.

Peaks are dense (no sparsity), bandwidths one direction, prices a typical on-demand list price of one device: an
AcceleratorProfile replaces any of them. The shares that code reaches are in `Efficiency`, one named factor each, so
that a wrong prediction can be traced to one number. Known hole: clocks under a power cap are not modelled.

Also the element types of weights, KV cache and arithmetic, under the names that manifests use, and the price of a
replica: money is decimal, a pool's price is the sum of its replicas' prices.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Final

from paceline_core.errors import InvalidInput
from paceline_core.objects.accelerator import AcceleratorSpec
from paceline_core.objects.field_errors import FieldError, did_you_mean
from paceline_core.objects.resolved import ResolvedPool, ResolvedService
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

_BUDGET_FIELD: Final = "spec.scaling.budget.dollarsPerHour"
TERA = 1e12
GIGA = 1e9
_NVIDIA = "nvidia.com/gpu"
_NOT_NVIDIA = (
    "amd.com/",
    "aws.amazon.com/neuron",
    "google.com/tpu",
    "gpu.intel.com/",
    "habana.ai/",
    "huawei.com/",
)
"""The prefixes of extended resources for other vendors' devices."""


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


_HOPPER = {
    Dtype.FP32: 67 * TERA,
    Dtype.BF16: 989 * TERA,
    Dtype.FP16: 989 * TERA,
    Dtype.FP8: 1979 * TERA,
    Dtype.INT8: 1979 * TERA,
}

H100 = Accelerator("h100", int(80e9), 3350 * GIGA, _HOPPER, link=450 * GIGA, price=Decimal("3.93"), watts=700)
"""H100 SXM5 80 GB. Source: NVIDIA's data sheet (its figures with sparsity halved; NVLink 900 GB/s counts both ways);
price: an eighth of AWS p5.48xlarge after June 2025."""

H200 = Accelerator("h200", int(141e9), 4800 * GIGA, _HOPPER, link=450 * GIGA, price=Decimal("4.98"), watts=700)
"""H200 SXM 141 GB. Source: NVIDIA's data sheet; compute as H100. Price: an eighth of AWS p5en.48xlarge, 2025."""

L4 = Accelerator(
    "l4",
    int(24e9),
    300 * GIGA,
    {
        Dtype.FP32: 30.3 * TERA,
        Dtype.BF16: 121 * TERA,
        Dtype.FP16: 121 * TERA,
        Dtype.FP8: 242.5 * TERA,
        Dtype.INT8: 242.5 * TERA,
    },
    link=32 * GIGA,
    price=Decimal("0.80"),
    watts=72,
    efficiency=Efficiency(latency=30e-6),
)
"""L4 24 GB. Source: NVIDIA's data sheet (sparsity halved); link: PCIe 4.0 x16, without peer-to-peer NVLink, so a hop is
longer. Price: AWS g6.xlarge, whose GPU it is. The shares of Hopper are assumed."""

CPU = Accelerator(
    "cpu",
    int(16e9),
    23 * GIGA,
    {Dtype.FP32: 0.32 * TERA, Dtype.BF16: 0.12 * TERA},
    price=Decimal("0.10"),
    watts=30,
    efficiency=Efficiency(
        compute=0.5, attention=0.25, bandwidth=0.9, step=500e-6, layer=350e-6, sequence=1.3e-3, load=1 * GIGA
    ),
)
"""Two server cores with AVX-512, 16 GB. Measured with a 125 M parameter Llama in plain PyTorch: reads 20.7 GB/s,
1,035 prompt tokens/s in fp32 and 302 in bf16, 41.5 tokens/s alone, 222 for eight sequences; the factors reproduce these
within 15 %. Price: a general-purpose cloud machine of two virtual CPUs."""

CATALOGUE: Mapping[str, Accelerator] = {item.name: item for item in (H100, H200, L4, CPU)}


def accelerator(name: str) -> Accelerator:
    """The built-in accelerator of that name; raises InvalidInput naming those that exist."""
    if name not in CATALOGUE:
        raise InvalidInput(
            "accelerator", f"{name!r} is not known; use one of {', '.join(CATALOGUE)} or write a profile"
        )
    return CATALOGUE[name]


def unknown_accelerators(service: ResolvedService, profiles: Iterable[str]) -> Iterator[FieldError]:
    """Pools on an accelerator that neither paceline nor one of these profiles knows; none if steps are emulated."""
    known = list(dict.fromkeys((*CATALOGUE, *profiles)))
    for place, pool in enumerate(() if service.emulated else service.pools):
        name = pool.accelerator
        if name not in known:
            fix = f"write one of them, or add an AcceleratorProfile {name}"
            hint = did_you_mean(name, [one for one in known if one[0] == name[0]])  # a100 is not a typo for h100
            message = f"{name!r} is none of {', '.join(known)}, which are known here{hint}; {fix}"
            yield FieldError(f"spec.pools[{place}].accelerator", message)


def unmanaged_accelerators(service: ResolvedService, find: Callable[[str], Accelerator | None]) -> Iterator[FieldError]:
    """Pools that would compute on devices of other vendors, without emulation: their workers would refuse to start."""
    for place, pool in enumerate(() if service.emulated else service.pools):
        device = find(pool.accelerator)
        if device is not None and device.resource.startswith(_NOT_NVIDIA):
            message = f"workers compute on NVIDIA GPUs and CPUs in this version, and {device.name} is {device.resource}"
            fix = "name an NVIDIA GPU or cpu, or emulate with spec.engine.emulate"
            yield FieldError(f"spec.pools[{place}].accelerator", f"{message}; {fix}")


def by_device_name(name: str) -> Accelerator | None:
    """The built-in accelerator for a driver's device name ("NVIDIA H100 80GB HBM3"); None for others and slices (MIG).

    Forms of one chip (SXM, PCIe, NVL) count as one: the worker's online fit corrects their differences.
    """
    words = name.lower().replace("-", " ").split()
    return None if "mig" in words else next((CATALOGUE[word] for word in words if word in CATALOGUE), None)


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


def pool_price(
    service: ResolvedService, pool: ResolvedPool, find: Callable[[str], Accelerator | None]
) -> Decimal | None:
    """The price of a pool's replica, or of the accelerator that it emulates; `find` looks accelerators up by name."""
    emulation = service.engine.emulation
    device = find(emulation.accelerator if emulation else pool.accelerator)
    return None if device is None else replica_price(device, max(replica_devices(service, pool), 1))


def budget_doubts(service: ResolvedService, find: Callable[[str], Accelerator | None]) -> Iterator[FieldError]:
    """Why a budget in dollars is probably a mistake: too small for the minima, or a pool's price is unknown."""
    budget = service.scaling.budget_dollars_per_hour
    if budget is None:
        return
    prices = {pool.name: pool_price(service, pool, find) for pool in service.pools}
    known = [price for price in prices.values() if price is not None]
    minimum = sum((pool.min * (prices[pool.name] or 0) for pool in service.pools), Decimal(0))
    if budget < minimum:
        message = f"{budget:f} is below the {minimum:f} that replicas.min of all pools costs; raise it, or lower min"
        yield FieldError(_BUDGET_FIELD, message)
    elif known and budget < min(known) and len(known) == len(prices):
        yield FieldError(
            _BUDGET_FIELD, f"{budget:f} is below the {min(known):f} of one replica; raise it, or remove it"
        )
    if unpriced := [name for name, price in prices.items() if price is None]:
        message = f"the price of pool {', '.join(unpriced)} is unknown, so that it counts as nothing"
        yield FieldError(_BUDGET_FIELD, f"{message}; write dollarsPerHour in its AcceleratorProfile")


def replica_devices(service: ResolvedService, pool: ResolvedPool) -> int:
    """GPUs of one replica: emulated ones if it is emulated."""
    return pool.tensor * service.engine.pipeline if service.engine.emulation else pool.gpus
