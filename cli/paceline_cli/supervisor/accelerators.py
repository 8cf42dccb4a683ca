"""What is noted of the accelerators that pools name: names that nothing here knows, and fp8 where none is known to be.

An accelerator is built in, or an AcceleratorProfile among the manifests; a cluster may have more profiles than these.
"""

from collections.abc import Iterable, Iterator, Mapping

from paceline_core.manifests import Manifest
from paceline_core.objects import AcceleratorProfile, ResolvedService
from paceline_core.objects.problems import did_you_mean
from paceline_planner.dtypes import Dtype
from paceline_planner.hardware import CATALOGUE, Accelerator, from_profile


def accelerators(here: Iterable[Manifest]) -> Mapping[str, Accelerator]:
    """By name; a profile replaces what is built in."""
    profiles = (manifest.found for manifest in here if isinstance(manifest.found, AcceleratorProfile))
    return {**CATALOGUE, **{one.name: from_profile(one.name, one.spec) for one in profiles}}


def device_notes(service: ResolvedService, known: Mapping[str, Accelerator]) -> Iterator[str]:
    """About the pools that really compute, in their order."""
    for place, pool in enumerate([] if service.emulated else service.pools):
        device = known.get(pool.accelerator)
        if device is None:
            yield f"spec.pools[{place}].accelerator: {_unknown(pool.accelerator, known)}"
        if pool.accelerator != "cpu" and service.engine.kv_dtype == "fp8" and not _has_fp8(device):
            yield (
                "spec.engine.kvCache.dtype: fp8 needs GPUs of compute capability 8.9 or later (Ada, Hopper), and "
                f"nothing here says that {pool.accelerator} has fp8; write int8 or bf16 if it has not"
            )


def _unknown(name: str, known: Iterable[str]) -> str:
    """A name that only a profile elsewhere can explain."""
    names = list(known)
    fix = f"write one of them, or add an AcceleratorProfile {name}"
    return f"{name!r} is none of {', '.join(names)}, which are known here{did_you_mean(name, names)}; {fix}"


def _has_fp8(device: Accelerator | None) -> bool:
    return device is not None and Dtype.FP8 in device.flops
