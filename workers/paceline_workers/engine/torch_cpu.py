"""The reference backend: PyTorch on the CPU, pages gathered per layer. Slow, exact, and without surprises.

float32 unless the configuration asks for bf16, which halves memory. It is several times as fast in prefill where the
processor multiplies bf16 (AMX, AVX512-BF16); where it does not, it is slower in everything but single streams.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from paceline_core.errors import InvalidInput
from paceline_core.wire import StepTime
from paceline_planner import hardware, steptime
from paceline_planner.caps import Caps
from paceline_planner.shapes import ModelShape
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.backend import Executed, Facts, Pause
from paceline_workers.engine.free_memory import free_memory
from paceline_workers.engine.memory.copies import Copy, CopyKind
from paceline_workers.engine.memory.sight import widest
from paceline_workers.engine.model import config, decoder
from paceline_workers.engine.model.attention import PagedCache
from paceline_workers.engine.model.products import Products
from paceline_workers.engine.model.weights import TORCH_TYPES, Weights
from paceline_workers.engine.pagefiles import PageFiles, file_bytes
from paceline_workers.engine.runner import Runner
from paceline_workers.engine.sampling import Grammars, Sampler
from paceline_workers.engine.scheduling import Chunk, Plan, Request
from paceline_workers.engine.timer import Timer
from paceline_workers.messages import Sampling
from paceline_workers.source import locate

ROOM = 1 << 30
"""Bytes of KV pages, at most, when nothing is configured."""
PAGE_LAYOUT = "layer, 2, kv head, token, head_dim"
"""Of a page's bytes: files that hold some are named by it too."""
_TRIPS = 16


@dataclass(frozen=True, slots=True)
class TorchBackend:
    """A decoder, its pages, and what the loop may know of them."""

    facts: Facts
    decoder: decoder.Decoder
    cache: PagedCache
    runner: Runner

    @classmethod
    def load(cls, engine: EngineConfig, source: str, timer: Timer, pause: Pause) -> "TorchBackend":
        """From a model source to a warm model. Raises InvalidInput naming the file or field and the fix."""
        with memory_named(engine):
            return cls._load(engine, source, timer, pause)

    @classmethod
    def _load(cls, engine: EngineConfig, source: str, timer: Timer, pause: Pause) -> "TorchBackend":
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")  # huge pages for weights: torch asks at its first tensor
        torch.set_num_threads(engine.threads or _threads())
        stages = _Stages(timer)
        with stages.stage("config"):
            folder = locate(source)
            settings = config.read(folder)
            settings = replace(settings, sights=sizing.sights(engine, settings.sights))
            sight = widest(settings.sights)
            shape = sizing.shaped(engine, settings.shape)
            page_bytes = engine.page_tokens * shape.kv_bytes_per_token
            pages = sizing.pages(engine, page_bytes, _room(engine, shape, page_bytes))
            limits = sizing.limits(engine, context=shape.max_context, vocab_size=shape.vocab, pages=pages, sight=sight)
            host_pages = sizing.host_pages(engine, page_bytes)
            sizing.fit(engine, shape.weight_bytes + pages * page_bytes, free_memory())
        with stages.stage("load"), Weights(folder, TORCH_TYPES[shape.weight_dtype]) as weights:
            model = decoder.load(settings, weights, Products.of(engine.products), lambda: pause(0.0))
        with stages.stage("warm"):
            files = _files(engine, settings, folder, page_bytes)
            cache = PagedCache(shape, pages, engine.page_tokens, host_pages, files)
            model(model.lay_out(_first_step(), engine.page_tokens), cache)
            copy_s = _copy_seconds(cache, timer) if host_pages else 0.0
            grammars = Grammars.load(folder, shape.vocab, settings.generation.eos_ids)
        facts = Facts(
            limits=limits,
            pages=pages,
            page_bytes=page_bytes,
            eos_ids=settings.generation.eos_ids,
            defaults=settings.generation.defaults,
            prior=_prior(engine, shape),
            stages=stages.seconds,
            host_pages=host_pages,
            page_copy_s=copy_s,
            sight=sight,
            disk=files,
            grammars=grammars,
            embedding=shape.hidden,
        )
        return cls(facts, model, cache, Runner(model, cache, Sampler(grammars)))

    def launch(self, plan: Plan, since: float) -> None:  # noqa: ARG002 - only emulation keeps to a time
        """The copies and one forward pass."""
        self.runner.launch(plan, self.facts.limits.page_tokens)

    def collect(self) -> Executed:
        """One sample for each chunk that closes its request's gap."""
        return Executed(self.runner.collect())


@contextmanager
def memory_named(engine: EngineConfig) -> Iterator[None]:
    """Raise InvalidInput when memory cannot be had: another try would not find more."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "DefaultCPUAllocator" not in str(error):
            raise
        words = str(error).rpartition("DefaultCPUAllocator: ")[2].strip()
        raise InvalidInput(_largest(engine), f"does not fit into memory ({words}); make it smaller") from None


def _largest(engine: EngineConfig) -> str:
    """What is made smaller first: what somebody has set, else the model."""
    sizes = {"host_bytes": engine.host_bytes, "kv_pages": engine.kv_pages, "kv_bytes": engine.kv_bytes}
    return next((f"engine.{name}" for name, size in sizes.items() if size), "model")


class _Stages:
    """Seconds by stage of loading."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin = self._timer.now()
        yield
        self.seconds[name] = self._timer.now() - begin


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


def _copy_seconds(cache: PagedCache, timer: Timer) -> float:
    """Seconds to bring a page back: page 0 goes out and in again, once to touch the memory and then timed."""
    round_trip = (Copy(CopyKind.OUT, 0, 0), Copy(CopyKind.IN, 0, 0))
    cache.copy(round_trip)
    begin = timer.now()
    cache.copy(round_trip * _TRIPS)
    return (timer.now() - begin) / (2 * _TRIPS)


def _files(engine: EngineConfig, settings: config.ModelConfig, folder: Path, page_bytes: int) -> PageFiles | None:
    """Pages on disk, named by all that their bytes depend on beside the tokens."""
    limit = sizing.disk_pages(engine, page_bytes, file_bytes(page_bytes))
    if not limit or engine.disk_path is None:
        return None
    weights = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]
    types = (PAGE_LAYOUT, engine.dtype, engine.kv_dtype, engine.products, engine.page_tokens, torch.__version__)
    return PageFiles.open(engine.disk_path, repr((settings, types, weights)).encode(), page_bytes, limit)


def _first_step() -> Plan:
    """One token into page 0, so that the first client does not pay for torch's first call."""
    request = Request("warm", 1, [0], 1, Sampling(temperature=0.0), 0.0, pages=[0])
    return Plan((Chunk(request, 0, 1, True),))
