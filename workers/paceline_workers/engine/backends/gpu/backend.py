"""Loads a model onto a GPU: puts the weights there, runs the largest step to measure the room that it leaves for pages,
compiles every kernel and records every graph before the engine reports that it is ready.

It checks the machine's prerequisites (compiler, cache folder, sizes that kernels support) before it reads anything.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from paceline_core.telemetry import get_logger
from paceline_core.wire import StepTime
from paceline_planner import accelerators, steptime
from paceline_planner.hardware import Dtype
from paceline_planner.shapes import ModelShape
from paceline_planner.steptime import Caps
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backends.base import Alive, BackendInfo, Pause, StepResult, unheard
from paceline_workers.engine.backends.cpu.linear import LinearFactory
from paceline_workers.engine.backends.gpu import memory_profile, toolchain
from paceline_workers.engine.backends.gpu.cache import PAGE_LAYOUT, GpuCache, page_bytes
from paceline_workers.engine.backends.gpu.decoder import LAUNCHES, GpuDecoder, Kernels
from paceline_workers.engine.backends.gpu.device import CudaDevice, Device
from paceline_workers.engine.backends.gpu.runner import GpuRunner
from paceline_workers.engine.devices import Gpu
from paceline_workers.engine.kv_cache.attention_window import widest
from paceline_workers.engine.loading import Stages, copy_seconds, memory_named, page_files
from paceline_workers.engine.model import config, decoder
from paceline_workers.engine.model.weights import TORCH_TYPES, Weights
from paceline_workers.engine.sampling import Grammars, Sampler
from paceline_workers.engine.scheduling import SchedulerLimits, StepPlan
from paceline_workers.engine.sizing import free_memory
from paceline_workers.engine.timer import Timer
from paceline_workers.model_source import locate

UNKNOWN = accelerators.L4
"""A GPU that the planner does not know starts with the figures of its slowest one; the online fit corrects them."""
HOST_THREADS = 2
"""Torch threads on the host, which only lays out steps and draws for requests with grammars."""
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class GpuContext:
    """Where an engine computes: the driver's name of the GPU, its streams, its memory; and with which kernels."""

    gpu: Gpu
    device: Device
    memory: memory_profile.DeviceMemory
    kernels: Kernels = LAUNCHES

    @classmethod
    def open(cls, gpu: Gpu) -> "GpuContext":
        """The current CUDA device, if kernels can be compiled here. Raises InvalidInput if not."""
        toolchain.check(os.environ)
        return cls(gpu, CudaDevice(torch.device("cuda")), memory_profile.CudaMemory())


@dataclass(frozen=True, slots=True)
class TritonBackend:
    """A loaded model on a GPU, and its facts for the loop."""

    facts: BackendInfo
    runner: GpuRunner

    @classmethod
    def load(cls, engine: EngineConfig, source: str, timer: Timer, pause: Pause, site: GpuContext) -> "TritonBackend":
        """Load and warm the model of a source. Raises InvalidInput naming the file or field and the fix."""
        with memory_named(engine):
            backend = _Load(engine, site, timer, lambda: pause(0.0)).backend(source)
        _log.info("computing on a GPU", extra={"gpu": site.gpu.name, "pages": backend.facts.pages})
        return backend

    def launch(self, plan: StepPlan, since: float) -> None:  # noqa: ARG002 - only emulation uses it
        """The copies and one forward pass, after the step in flight."""
        self.runner.launch(plan)

    def collect(self, alive: Alive = unheard) -> StepResult:
        """One sample for each chunk that closes its request's gap."""
        return self.runner.collect(alive)


@dataclass(frozen=True, slots=True)
class _Load:
    """One load, and what all its stages need; `progress` may abort it."""

    engine: EngineConfig
    site: GpuContext
    timer: Timer
    progress: Callable[[], None]

    def backend(self, source: str) -> TritonBackend:
        stages, engine, device = Stages(self.timer), self.engine, self.site.device
        torch.set_num_threads(engine.threads or HOST_THREADS)
        with stages.stage("config"):
            folder = locate(source)
            settings = self._settings(config.read(folder))
            shape, size = settings.shape, page_bytes(settings.shape, engine.page_tokens)
            host_pages = sizing.host_pages(engine, size)
            sizing.fit(engine, 0, free_memory())
            grammars = Grammars.load(folder, shape.vocab, settings.generation.eos_ids)
        with stages.stage("load"):
            model = self._model(folder, settings)
        with stages.stage("warm"):
            pages = sizing.pages(engine, size, self._room(model, size))
            limits = self._limits(settings, pages)
            files = page_files(engine, settings, folder, size, PAGE_LAYOUT)
            cache = GpuCache(shape, pages, engine.page_tokens, host_pages, files, device=device)
            runner = GpuRunner(model, cache, Sampler(grammars), limits)
            runner.warm(self.progress)
            copy_s = copy_seconds(cache.copy, device.finish, self.timer) if host_pages else 0.0
        return TritonBackend(
            BackendInfo(
                limits=limits,
                pages=pages,
                page_bytes=size,
                eos_ids=settings.generation.eos_ids,
                defaults=settings.generation.defaults,
                prior=self._prior(shape),
                stages=stages.seconds,
                ahead=True,
                host_pages=host_pages,
                page_copy_s=copy_s,
                attention_window=widest(settings.attention_windows),
                disk=files,
                grammars=grammars,
                embedding=shape.hidden,
            ),
            runner,
        )

    def _settings(self, settings: config.ModelConfig) -> config.ModelConfig:
        """The model with the types that are computed here."""
        shape = sizing.shaped(self.engine, settings.shape, Dtype.BF16)
        memory_profile.check(self.engine, shape, self.site.gpu, page_bytes(shape, self.engine.page_tokens))
        return replace(
            settings, shape=shape, attention_windows=sizing.attention_windows(self.engine, settings.attention_windows)
        )

    def _model(self, folder: Path, settings: config.ModelConfig) -> GpuDecoder:
        device, longest = self.site.device, self._longest(settings).max_model_len
        with Weights(folder, TORCH_TYPES[settings.shape.weight_dtype], device.where) as weights:
            model = decoder.load(settings, weights, LinearFactory("plain"), self.progress)
        return GpuDecoder(model, device, longest, self.site.kernels)

    def _limits(self, settings: config.ModelConfig, pages: int) -> SchedulerLimits:
        shape, attention_window = settings.shape, widest(settings.attention_windows)
        return sizing.limits(
            self.engine,
            context=shape.max_context,
            vocab_size=shape.vocab,
            pages=pages,
            attention_window=attention_window,
        )

    def _longest(self, settings: config.ModelConfig) -> SchedulerLimits:
        """The limits of an engine with pages for the longest request."""
        return self._limits(settings, -(-settings.shape.max_context // self.engine.page_tokens))

    def _room(self, model: GpuDecoder, size: int) -> int:
        """Bytes for pages, measured by a step on a minimal pool; 0, without a step, if pages are configured."""
        if self.engine.kv_pages is not None or self.engine.kv_bytes is not None:
            return 0
        limits = self._longest(model.config)
        plan = memory_profile.largest_step(limits)
        pages = memory_profile.pages_of(plan)

        def step() -> None:
            cache = GpuCache(model.config.shape, pages, self.engine.page_tokens, device=self.site.device)
            runner = GpuRunner(model, cache, Sampler(None), limits)
            runner.launch(plan)
            runner.collect()

        peak = self.site.memory.peak(step) - pages * size
        self.progress()
        left = self.site.memory.left()
        found = memory_profile.room(left, peak)
        memory_profile.check_room(found, size, left, self.site.gpu)
        return found

    def _prior(self, shape: ModelShape) -> StepTime:
        known = accelerators.by_device_name(self.site.gpu.name)
        if known is None:
            _log.info("the planner does not know this GPU", extra={"gpu": self.site.gpu.name, "like": UNKNOWN.name})
        return steptime.prior(shape, known or UNKNOWN, caps=Caps(self.engine.step_tokens, self.engine.max_seqs))
