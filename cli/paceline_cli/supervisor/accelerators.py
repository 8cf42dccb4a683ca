"""Notes on the accelerators that pools name: unknown names, devices that workers cannot use, and budgets that their
prices break.

An accelerator is built in, or an AcceleratorProfile among the manifests; a cluster may have more profiles than these.
Hole: a profile does not say which compute capability a GPU has; one without bf16 counts as too old.
"""

from collections.abc import Iterable, Iterator, Mapping

from paceline_core.manifests import ParsedManifest
from paceline_core.objects import AcceleratorProfile, ResolvedService
from paceline_planner.cost import budget_doubts
from paceline_planner.dtypes import Dtype
from paceline_planner.hardware import CATALOGUE, Accelerator, from_profile, unknown_accelerators


def accelerators(here: Iterable[ParsedManifest]) -> Mapping[str, Accelerator]:
    """By name; a profile replaces what is built in."""
    profiles = (manifest.found for manifest in here if isinstance(manifest.found, AcceleratorProfile))
    return {**CATALOGUE, **{one.name: from_profile(one.name, one.spec) for one in profiles}}


def device_notes(service: ResolvedService, known: Mapping[str, Accelerator]) -> Iterator[str]:
    """About the pools that really compute, then about the budget."""
    yield from map(str, unknown_accelerators(service, known))
    for place, pool in enumerate(() if service.emulated else service.pools):
        device = known.get(pool.accelerator)
        if device is not None and pool.accelerator != "cpu" and Dtype.BF16 not in device.flops:
            yield (
                f"spec.pools[{place}].accelerator: workers compute on GPUs of compute capability 8.0 or later "
                f"(Ampere), which have bf16, and {pool.accelerator} has no teraflops.bf16; write it if the GPU has"
            )
        if pool.accelerator != "cpu" and service.engine.kv_dtype == "fp8" and not _has_fp8(device):
            yield (
                "spec.engine.kvCache.dtype: fp8 needs GPUs of compute capability 8.9 or later (Ada, Hopper) in pool "
                f"{pool.name}, and nothing here says that {pool.accelerator} has fp8; write int8 or bf16 if it has not"
            )
    yield from map(str, budget_doubts(service, known.get))


def profile_notes(profile: AcceleratorProfile) -> Iterator[str]:
    """A note where a profile replaces a built-in accelerator and loses its price."""
    built_in = CATALOGUE.get(profile.name)
    if built_in is not None and built_in.price is not None and profile.spec.dollars_per_hour is None:
        yield f"replaces all of the built-in {profile.name}, its price too; write dollarsPerHour, or it counts as free"


def _has_fp8(device: Accelerator | None) -> bool:
    return device is not None and Dtype.FP8 in device.flops
