"""The accelerators that paceline knows, each number with its source; an AcceleratorProfile replaces any of them.

Peaks are those of dense products, bandwidths of one direction, prices an on-demand list price of one device, None where
no list price was found. Workers compute on NVIDIA's; MI300X and TPU v5e can be planned with, and emulated, only.

Shares of the peaks are `Efficiency`'s defaults (Hopper's) unless a measurement is named. Two sources measure others:
logs of vLLM 0.19 (github.com/casys-kaist/LLMServingSim, bench/examples) and Splitwise's profile of Llama-2-70B
(github.com/Mutinifni/splitwise-sim, data/perf_model.csv). `python -m benchmarks.planner` compares them with both.
"""

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import GIGA, TERA, Accelerator, Dtype, Efficiency

PCIE = Efficiency(link=0.3, latency=100e-6)
"""All-reduces over PCIe without peer-to-peer: fitted to the log of Qwen3-32B on two RTX PRO 6000, which take about 1.2
ms for 21 MB in prefill and 0.1 ms each in decode."""


def _flops(fp32: float, bf16: float, fp8: float | None = None, int8: float | None = None) -> Mapping[Dtype, float]:
    """Peaks given in TFLOP/s."""
    peaks = {Dtype.FP32: fp32, Dtype.BF16: bf16, Dtype.FP16: bf16, Dtype.FP8: fp8, Dtype.INT8: int8}
    return {dtype: peak * TERA for dtype, peak in peaks.items() if peak is not None}


A100 = Accelerator(
    "a100",
    int(80e9),
    2039 * GIGA,
    _flops(19.5, 312, int8=624),
    link=300 * GIGA,
    price=Decimal("2.16"),
    watts=400,
    efficiency=Efficiency(compute=0.65),
)
"""A100 SXM4 80 GB. Source: NVIDIA A100 data sheet (nvidia.com/en-us/data-center/a100; NVLink 600 GB/s counts both
ways). Compute: Splitwise's prefills of 2,048 tokens on two and four reach 0.65. Price:
docs.runpod.io/serverless/pricing, active worker, $0.00060 a second."""

B200 = Accelerator(
    "b200",
    int(180e9),
    8000 * GIGA,
    _flops(75, 2250, fp8=4500, int8=4500),
    link=900 * GIGA,
    price=Decimal("6.84"),
    watts=1000,
)
"""B200 in an HGX B200, 180 GB. Source: NVIDIA HGX data sheet (nvidia.com/en-us/data-center/hgx; its figures with
sparsity halved; 1.8 TB/s of NVLink count both ways). Price: docs.runpod.io/serverless/pricing, active worker, $0.00190
a second."""

_HOPPER = _flops(67, 989, fp8=1979, int8=1979)

H100 = Accelerator("h100", int(80e9), 3350 * GIGA, _HOPPER, link=450 * GIGA, price=Decimal("3.93"), watts=700)
"""H100 SXM5 80 GB. Source: NVIDIA's data sheet (its figures with sparsity halved; NVLink 900 GB/s counts both ways);
price: an eighth of AWS p5.48xlarge after June 2025."""

H200 = Accelerator("h200", int(141e9), 4800 * GIGA, _HOPPER, link=450 * GIGA, price=Decimal("4.98"), watts=700)
"""H200 SXM 141 GB. Source: NVIDIA's data sheet; compute as H100. Price: an eighth of AWS p5en.48xlarge, 2025."""

L4 = Accelerator(
    "l4",
    int(24e9),
    300 * GIGA,
    _flops(30.3, 121, fp8=242.5, int8=242.5),
    link=32 * GIGA,
    price=Decimal("0.80"),
    watts=72,
    efficiency=PCIE,
)
"""L4 24 GB. Source: NVIDIA's data sheet (sparsity halved); link: PCIe 4.0 x16. Price: AWS g6.xlarge, whose GPU it
is."""

L40S = Accelerator(
    "l40s",
    int(48e9),
    864 * GIGA,
    _flops(91.6, 362, fp8=733, int8=733),
    link=32 * GIGA,
    price=Decimal("1.33"),
    watts=350,
    efficiency=PCIE,
)
"""L40S 48 GB. Source: NVIDIA L40S data sheet (nvidia.com/en-us/data-center/l40s); link: PCIe 4.0 x16. Price:
docs.runpod.io/serverless/pricing, active worker, $0.00037 a second."""

RTX_4090 = Accelerator(
    "rtx-4090",
    int(24e9),
    1008 * GIGA,
    _flops(82.6, 165.2, fp8=330.3, int8=660.6),
    link=32 * GIGA,
    price=Decimal("0.76"),
    watts=450,
    efficiency=replace(PCIE, compute=0.80),
)
"""GeForce RTX 4090 24 GB. Source: NVIDIA Ada GPU Architecture, appendix A (images.nvidia.com; sums in fp32, which halve
its rate); link: PCIe 4.0 x16. Compute: vLLM's log of Llama-3.1-8B. Price: docs.runpod.io/serverless/pricing, active
worker, $0.00021 a second."""

RTX_5090 = Accelerator(
    "rtx-5090",
    int(32e9),
    1792 * GIGA,
    _flops(104.8, 209.5, fp8=419, int8=838),
    link=64 * GIGA,
    watts=575,
    efficiency=replace(PCIE, compute=0.80),
)
"""GeForce RTX 5090 32 GB. Source: NVIDIA RTX Blackwell GPU Architecture, appendix A (images.nvidia.com; sums in fp32);
link: PCIe 5.0 x16. Compute: assumed as that of the RTX 4090."""

RTX_6000_ADA = Accelerator(
    "rtx-6000-ada",
    int(48e9),
    960 * GIGA,
    _flops(91.1, 364.2, fp8=728.5, int8=728.5),
    link=32 * GIGA,
    price=Decimal("1.33"),
    watts=300,
    efficiency=PCIE,
)
"""RTX 6000 Ada Generation 48 GB. Source: NVIDIA's data sheet (nvidia.com/en-us/products/workstations/rtx-6000) and Ada
GPU Architecture, appendix B; link: PCIe 4.0 x16. Price: docs.runpod.io/serverless/pricing, active worker, as L40S."""

RTX_PRO_6000 = Accelerator(
    "rtx-pro-6000",
    int(96e9),
    1792 * GIGA,
    _flops(125, 503.8, fp8=1007.6, int8=1007.6),
    link=64 * GIGA,
    watts=600,
    efficiency=replace(PCIE, compute=0.60),
)
"""RTX PRO 6000 Blackwell, Workstation Edition, 96 GB. Source: NVIDIA's data sheet
(nvidia.com/en-us/products/workstations/professional-desktop-gpus/rtx-pro-6000) and RTX Blackwell PRO GPU Architecture
(sparsity halved); link: PCIe 5.0 x16. Compute: vLLM's log of Llama-3.1-8B."""

MI300X = Accelerator(
    "mi300x",
    int(192e9),
    5300 * GIGA,
    _flops(163.4, 1307.4, fp8=2614.9, int8=2614.9),
    link=448 * GIGA,
    watts=750,
    resource="amd.com/gpu",
    efficiency=Efficiency(compute=0.20, bandwidth=0.80),
)
"""Instinct MI300X 192 GB. Source: AMD's data sheet (amd.com/en/products/accelerators/instinct/mi300/mi300x.html). Link:
seven of 64 GB/s to the seven others, so a split over fewer than eight is predicted too fast. Compute and bandwidth:
from github.com/alpharomercoma/MI300X-vs-H200 (vLLM 0.26, 8B bf16), where an H200 prefills 2.06 times and decodes 1.02
times as fast."""

TPU_V5E = Accelerator(
    "tpu-v5e",
    int(16e9),
    819 * GIGA,
    {Dtype.BF16: 197 * TERA, Dtype.INT8: 393 * TERA},
    link=200 * GIGA,
    price=Decimal("1.20"),
    resource="google.com/tpu",
)
"""TPU v5e, one chip of 16 GB. Source: docs.cloud.google.com/tpu/docs/v5e (interconnect 400 GB/s counts both ways).
Price: cloud.google.com/tpu/pricing, on demand, us-central1. Its power is not published."""

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
"""Two server cores with AVX-512, 16 GB. Measured with a 125 M parameter Llama in plain PyTorch: reads 20.7 GB/s, 1,035
prompt tokens/s in fp32 and 302 in bf16, 41.5 tokens/s alone, 222 for eight sequences; the factors reproduce these
within 15 %. Price: a general-purpose cloud machine of two virtual CPUs."""

CATALOGUE: Mapping[str, Accelerator] = {
    item.name: item
    for item in (
        A100, B200, H100, H200, L4, L40S, RTX_4090, RTX_5090, RTX_6000_ADA, RTX_PRO_6000, MI300X, TPU_V5E, CPU,
    )
}  # fmt: skip


def accelerator(name: str) -> Accelerator:
    """The built-in accelerator of that name; raises InvalidInput naming those that exist."""
    if name not in CATALOGUE:
        raise InvalidInput(
            "accelerator", f"{name!r} is not known; use one of {', '.join(CATALOGUE)} or write a profile"
        )
    return CATALOGUE[name]


def by_device_name(name: str) -> Accelerator | None:
    """The built-in accelerator for a driver's device name ("NVIDIA H100 80GB HBM3").

    None for others, laptops' and slices (MIG). Forms of one chip (SXM, PCIe, NVL, 40 GB) count as one: the worker's
    online fit corrects their differences.
    """
    words = name.lower().replace("-", " ").split()
    if "mig" in words or "laptop" in words:
        return None
    text = f" {' '.join(words)} "
    return next((item for item in CATALOGUE.values() if f" {item.name.replace('-', ' ')} " in text), None)
