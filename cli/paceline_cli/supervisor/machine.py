"""What a valid service asks for that nothing serves, or not this machine: refused by field, before any start."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil

from paceline_core.errors import InvalidInput
from paceline_core.launch import invalid_filters, unsupported
from paceline_core.objects import FieldError, ResolvedService
from paceline_planner import emulation
from paceline_planner.shapes import from_config
from paceline_workers.engine.model.files import read_object
from paceline_workers.source import locate

FILE = "file://"
GPU_FILES = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""Where there is a driver of NVIDIA GPUs, one of these is: on Linux, and on Linux within Windows."""


def unsupported_here(service: ResolvedService) -> Iterator[FieldError]:
    """What this version serves nowhere, in the order of causes: the filters, the version, the catalogue."""
    yield from invalid_filters(service)
    yield from unsupported(service)
    yield from emulation.refusals(service)


def missing_on_host(service: ResolvedService, gpu_files: Sequence[Path] = GPU_FILES) -> Iterator[FieldError]:
    """What only this machine cannot give: a cluster, a GPU, the model's files, memory."""
    yield from _clusterbound(service)
    if not service.emulated:
        if not any(map(Path.exists, gpu_files)):
            yield from _gpuless(service)
        yield from _missing(service)
        yield from _beyond_context(service)
        yield from _beyond_memory(service)


def _clusterbound(service: ResolvedService) -> Iterator[FieldError]:
    for index, variable in enumerate(service.runtime.env):
        if variable.value_from is not None:
            field = f"spec.runtime.env[{index}].valueFrom"
            yield FieldError(field, "local mode has no Secrets or ConfigMaps; write the value itself as `value`")


def _gpuless(service: ResolvedService) -> Iterator[FieldError]:
    for index, pool in enumerate(service.pools):
        if pool.gpus:
            problem = f"this machine has no NVIDIA GPU for {pool.accelerator!r}"
            fix = "write cpu, or emulate with spec.engine.emulate"
            yield FieldError(f"spec.pools[{index}].accelerator", f"{problem}; {fix}")


def _missing(service: ResolvedService) -> Iterator[FieldError]:
    source = service.model.source
    folder = Path(source.removeprefix(FILE))
    if source.startswith(FILE) and not folder.is_dir():
        yield FieldError("spec.model.source", f"{folder} is not a folder on this machine; put the model's files there")


def _beyond_context(service: ResolvedService) -> Iterator[FieldError]:
    asked, most = service.engine.max_model_len, _context(service.model.source)
    if asked and most and asked > most:
        yield FieldError("spec.engine.maxModelLen", f"{asked} is over the model's context of {most}; lower it")


def _context(source: str) -> int | None:
    """As the model's folder says; None where it does not, or where a rotary scaling would have to be reckoned."""
    try:
        config = read_object(locate(source) / "config.json")
        return None if config.get("rope_scaling") or config.get("rope_parameters") else from_config(config).max_context
    except InvalidInput:
        return None  # the worker tells of a wrong folder


def _beyond_memory(service: ResolvedService) -> Iterator[FieldError]:
    asked, there = service.engine.host_offload_bytes, psutil.virtual_memory().total
    if asked > there:
        problem = f"{asked >> 20} MiB are more than this machine's memory of {there >> 20} MiB; ask for less"
        yield FieldError("spec.engine.kvCache.hostOffloadBytes", problem)
