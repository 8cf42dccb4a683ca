"""Chooses the device: the GPU or the CPUs as configured, by default a GPU if there is a suitable one.

A GPU is suitable if torch can use it and it multiplies bf16 (compute capability 8.0, Ampere). By default the engine
uses the CPUs instead of an unsuitable GPU, and logs that.
"""

from dataclasses import dataclass
from typing import Literal

import torch

from paceline_core.errors import InvalidInput
from paceline_core.telemetry import get_logger

Wanted = Literal["auto", "cpu", "cuda"]
LEAST = (8, 0)
"""The compute capability that the kernels need."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as its driver reports it; `capability` is NVIDIA's compute capability."""

    name: str
    capability: tuple[int, int]


def found() -> Gpu | None:
    """The GPU that torch would use on this machine: the first one that CUDA_VISIBLE_DEVICES allows."""
    if torch.version.cuda is None or not torch.cuda.is_available():
        return None
    return Gpu(torch.cuda.get_device_name(), torch.cuda.get_device_capability())


def chosen(wanted: Wanted, gpu: Gpu | None) -> Gpu | None:
    """The GPU to compute on, or None for the CPUs. Raises InvalidInput if the configured device is not there."""
    lack = _lack(gpu)
    if wanted == "cuda" and lack:
        fix = "run where `nvidia-smi` lists one (a pod gets one by its pool's gpusPerReplica), or compute on cpu"
        raise InvalidInput("engine.device", f"{lack}; {fix}")
    if wanted == "auto" and gpu is not None and lack:
        _log.warning("the GPU is not used", extra={"reason": lack})
    return None if wanted == "cpu" or lack else gpu


def _lack(gpu: Gpu | None) -> str:
    if gpu is None:
        return "torch finds no CUDA GPU here"
    if gpu.capability < LEAST:
        have, least = (".".join(map(str, numbers)) for numbers in (gpu.capability, LEAST))
        return f"{gpu.name} has compute capability {have}, below {least}"
    return ""
