"""Fields of a valid service that this version or this machine cannot serve: refused by field, before any start.

An accelerator is built in, or an AcceleratorProfile among the manifests; a cluster may have more profiles than these.
Known hole: a profile does not contain a GPU's compute capability; one without bf16 counts as too old.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from paceline_core.errors import InvalidInput
from paceline_core.launch import invalid_filters, unsupported
from paceline_core.manifests import ParsedManifest
from paceline_core.objects import AcceleratorProfile, FieldError, ResolvedService
from paceline_planner import coldstart
from paceline_planner.accelerators import CATALOGUE
from paceline_planner.hardware import Accelerator, Dtype, from_profile
from paceline_planner.model_config import from_config
from paceline_planner.service_devices import budget_doubts, unknown_accelerators
from paceline_workers.model_source import locate, read_object

FILE = "file://"
GPU_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""With a driver for NVIDIA GPUs, one of these exists: on Linux, and on Linux within Windows."""


def unsupported_here(service: ResolvedService) -> Iterator[FieldError]:
    """Fields that this version cannot serve anywhere: the filters, then the version, then the catalogue."""
    yield from invalid_filters(service)
    yield from unsupported(service)
    yield from coldstart.refusals(service)


def missing_on_host(service: ResolvedService, gpu_files: Sequence[Path] = GPU_FILES) -> Iterator[FieldError]:
    """Problems of only this machine: no cluster, GPU, model files or memory for the service."""
    for index, variable in enumerate(service.runtime.env):
        if variable.value_from is not None:
            field = f"spec.runtime.env[{index}].valueFrom"
            yield FieldError(field, "local mode has no Secrets or ConfigMaps; write the value itself as `value`")
    if service.emulated:
        return
    for index, pool in enumerate(() if any(map(Path.exists, gpu_files)) else service.pools):
        if pool.gpus:
            problem = f"this machine has no NVIDIA GPU for {pool.accelerator!r}"
            fix = "write cpu, or emulate with spec.engine.emulate"
            yield FieldError(f"spec.pools[{index}].accelerator", f"{problem}; {fix}")
    source = service.model.source
    folder = Path(source.removeprefix(FILE))
    if source.startswith(FILE) and not folder.is_dir():
        yield FieldError("spec.model.source", f"{folder} is not a folder on this machine; put the model's files there")
    yield from _too_large(service)


def _too_large(service: ResolvedService) -> Iterator[FieldError]:
    """Known hole: a context extended by rotary scaling is neither computed nor limited."""
    asked, most = service.engine.max_model_len, None
    try:
        config = read_object(locate(service.model.source) / "config.json")
        if not (config.get("rope_scaling") or config.get("rope_parameters")):
            most = from_config(config).max_context
    except InvalidInput:
        pass  # the worker reports a wrong folder
    if asked and most and asked > most:
        yield FieldError("spec.engine.maxModelLen", f"{asked} is over the model's context of {most}; lower it")
    offloaded, there = service.engine.host_offload_bytes, psutil.virtual_memory().total
    if offloaded > there:
        problem = f"{offloaded >> 20} MiB are more than this machine's memory of {there >> 20} MiB; ask for less"
        yield FieldError("spec.engine.kvCache.hostOffloadBytes", problem)


def accelerators(here: Iterable[ParsedManifest]) -> Mapping[str, Accelerator]:
    """Accelerators by name; a profile replaces a built-in one."""
    profiles = (manifest.found for manifest in here if isinstance(manifest.found, AcceleratorProfile))
    return {**CATALOGUE, **{one.name: from_profile(one.name, one.spec) for one in profiles}}


def device_notes(service: ResolvedService, known: Mapping[str, Accelerator]) -> Iterator[str]:
    """Notes about the pools that are not emulated, then about the budget."""
    yield from map(str, unknown_accelerators(service, known))
    for place, pool in enumerate(() if service.emulated else service.pools):
        device = known.get(pool.accelerator)
        if device is not None and pool.accelerator != "cpu" and Dtype.BF16 not in device.flops:
            yield (
                f"spec.pools[{place}].accelerator: workers compute on GPUs of compute capability 8.0 or later "
                f"(Ampere), which have bf16, and {pool.accelerator} has no teraflops.bf16; write it if the GPU has"
            )
        has_fp8 = device is not None and Dtype.FP8 in device.flops
        if pool.accelerator != "cpu" and service.engine.kv_dtype == "fp8" and not has_fp8:
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
