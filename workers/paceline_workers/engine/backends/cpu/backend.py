"""The reference backend: PyTorch on the CPU, pages gathered per layer. Slow, exact, and without surprises.

float32 unless the configuration asks for bf16, which halves memory. It is several times as fast in prefill where the
processor multiplies bf16 (AMX, AVX512-BF16); where it does not, it is slower in everything but single streams.
"""

import os
from dataclasses import dataclass, replace

import torch

from paceline_core.wire import StepTime
from paceline_planner import hardware, steptime
from paceline_planner.hardware import Dtype
from paceline_planner.shapes import ModelShape
from paceline_planner.steptime import Caps
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backends.base import Alive, BackendInfo, Pause, StepResult, unheard
from paceline_workers.engine.backends.cpu.linear import LinearFactory
from paceline_workers.engine.backends.cpu.runner import Runner
from paceline_workers.engine.kv_cache.attention_window import widest
from paceline_workers.engine.loading import Stages, copy_seconds, first_step, memory_named, page_files
from paceline_workers.engine.model import config, decoder
from paceline_workers.engine.model.attention import PagedCache
from paceline_workers.engine.model.weights import TORCH_TYPES, Weights
from paceline_workers.engine.sampling import Grammars, Sampler
from paceline_workers.engine.scheduling import StepPlan
from paceline_workers.engine.sizing import free_memory
from paceline_workers.engine.timer import Timer
from paceline_workers.model_source import locate

ROOM = 1 << 30
"""Bytes of KV pages, at most, when nothing is configured."""
PAGE_LAYOUT = "layer, 2, kv head, token, head_dim"
"""Of a page's bytes: files that hold some are named by it too."""


@dataclass(frozen=True, slots=True)
class CpuBackend:
    """A decoder, its pages, and what the loop may know of them."""

    facts: BackendInfo
    decoder: decoder.Decoder
    cache: PagedCache
    runner: Runner

    @classmethod
    def load(cls, engine: EngineConfig, source: str, timer: Timer, pause: Pause) -> "CpuBackend":
        """From a model source to a warm model. Raises InvalidInput naming the file or field and the fix."""
        with memory_named(engine):
            return cls._load(engine, source, timer, pause)

    @classmethod
    def _load(cls, engine: EngineConfig, source: str, timer: Timer, pause: Pause) -> "CpuBackend":
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # huge pages for weights: torch asks at its first tensor
        torch.set_num_threads(engine.threads or _threads())
        stages = Stages(timer)
        with stages.stage("config"):
            sizing.check_cpu(engine)
            folder = locate(source)
            settings = config.read(folder)
            shape = sizing.shaped(engine, settings.shape, Dtype.FP32)
            settings = replace(
                settings, shape=shape, attention_windows=sizing.attention_windows(engine, settings.attention_windows)
            )
            attention_window = widest(settings.attention_windows)
            page_bytes = engine.page_tokens * shape.kv_bytes_per_token
            pages = sizing.pages(engine, page_bytes, _room(engine, shape, page_bytes))
            limits = sizing.limits(
                engine,
                context=shape.max_context,
                vocab_size=shape.vocab,
                pages=pages,
                attention_window=attention_window,
            )
            host_pages = sizing.host_pages(engine, page_bytes)
            sizing.fit(engine, shape.weight_bytes + pages * page_bytes, free_memory())
        with stages.stage("load"), Weights(folder, TORCH_TYPES[shape.weight_dtype]) as weights:
            products = LinearFactory.of(engine.products, batch_invariant=engine.batch_invariant)
            model = decoder.load(settings, weights, products, lambda: pause(0.0))
        with stages.stage("warm"):
            files = page_files(engine, settings, folder, page_bytes, PAGE_LAYOUT)
            invariant = engine.batch_invariant
            cache = PagedCache(shape, pages, engine.page_tokens, host_pages, files, batch_invariant=invariant)
            model(model.lay_out(first_step(), engine.page_tokens), cache)
            copy_s = copy_seconds(cache.copy, _at_once, timer) if host_pages else 0.0
            grammars = Grammars.load(folder, shape.vocab, settings.generation.eos_ids)
        facts = BackendInfo(
            limits=limits,
            pages=pages,
            page_bytes=page_bytes,
            eos_ids=settings.generation.eos_ids,
            defaults=settings.generation.defaults,
            prior=_prior(engine, shape),
            stages=stages.seconds,
            host_pages=host_pages,
            page_copy_s=copy_s,
            attention_window=attention_window,
            disk=files,
            grammars=grammars,
            embedding=shape.hidden,
        )
        return cls(facts, model, cache, Runner(model, cache, Sampler(grammars)))

    def launch(self, plan: StepPlan, since: float) -> None:  # noqa: ARG002 - only emulation keeps to a time
        self.runner.launch(plan, self.facts.limits.page_tokens)

    def collect(self, alive: Alive = unheard) -> StepResult:  # noqa: ARG002 - it has used the CPU all the time
        """One sample for each chunk that closes its request's gap."""
        return self.runner.collect()


def _at_once() -> None:
    """Copies on the host are made when they return."""


def _threads() -> int:
    """All cores but one: the API process needs it, and threads that spin for a core make every step wait."""
    return max(len(os.sched_getaffinity(0)) - 1, 1)


def _room(engine: EngineConfig, shape: ModelShape, page_bytes: int) -> int:
    """What `max_seqs` requests of full length need, but at most ROOM and at least one page."""
    longest = engine.max_model_len or shape.max_context
    wanted = engine.max_seqs * -(-longest // engine.page_tokens) * page_bytes
    return max(min(wanted, ROOM), page_bytes)


def _prior(engine: EngineConfig, shape: ModelShape) -> StepTime:
    return steptime.prior(shape, hardware.CPU, caps=Caps(engine.step_tokens, engine.max_seqs))
