"""The GPU's runner over a model folder, with the CPU backend's facts: on a GPU, or on the CPU that stands in for it.

There the references compute in plain PyTorch what kernels do, so that what the runner adds (rows, buckets, copies,
results one step late) is tried on many tokens; `LAUNCHES` then run in Triton's interpreter, on few of them.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from tests.engine.driver import load
from tests.engine.gpu_references import REFERENCES
from tests.kernels.conftest import CUDA

from paceline_planner.hardware import Dtype
from paceline_workers.engine.backends.base import Alive, BackendInfo, StepResult, unheard
from paceline_workers.engine.backends.cpu.linear import LinearFactory
from paceline_workers.engine.backends.gpu.cache import GpuCache
from paceline_workers.engine.backends.gpu.decoder import LAUNCHES, GpuDecoder, Kernels
from paceline_workers.engine.backends.gpu.device import Device, opened
from paceline_workers.engine.backends.gpu.runner import GpuRunner
from paceline_workers.engine.model import decoder
from paceline_workers.engine.model.weights import TORCH_TYPES, Weights
from paceline_workers.engine.page_files import PageFiles
from paceline_workers.engine.sampling import Grammars, Sampler
from paceline_workers.engine.scheduling import StepPlan

KERNELS = LAUNCHES if CUDA else REFERENCES


@dataclass(frozen=True)
class GpuBench:
    """A backend as the loop and `Driver` want one."""

    facts: BackendInfo
    device: Device
    cache: GpuCache
    runner: GpuRunner
    sampler: Sampler

    def launch(self, plan: StepPlan, since: float) -> None:
        self.runner.launch(plan)

    def collect(self, alive: Alive = unheard) -> StepResult:
        return self.runner.collect(alive)


def bench(
    folder: Path, *, kernels: Kernels = KERNELS, kv: Dtype | None = None, device: Device | None = None, **engine: Any
) -> GpuBench:
    """A model with limits and pages as the CPU backend finds them, keys and values of type `kv` if one is given."""
    device = device or opened(torch.device("cuda" if CUDA else "cpu"))
    backend = load(folder, products="plain", **engine)
    facts, config = backend.facts, backend.decoder.config
    if kv is not None:
        config = replace(config, shape=replace(config.shape, kv_dtype=kv))
    with Weights(folder, TORCH_TYPES[config.shape.weight_dtype], device.where) as weights:
        model = decoder.load(config, weights, LinearFactory("plain"), lambda: None)
    pages = (facts.pages, facts.limits.page_tokens, facts.host_pages)
    cache = GpuCache(config.shape, *pages, cast("PageFiles | None", facts.disk), device=device)
    mine = GpuDecoder(model, device, facts.limits.max_model_len, kernels)
    sampler = Sampler(cast("Grammars | None", facts.grammars))
    runner = GpuRunner(mine, cache, sampler, facts.limits)
    return GpuBench(replace(facts, ahead=True), device, cache, runner, sampler)
