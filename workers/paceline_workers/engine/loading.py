"""Common parts of loading a backend that computes: times the stages, reports a lack of memory, opens page files.

Known hole: a message about memory from a driver or another library is passed on as it is, unless it is known here.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from paceline_core.errors import InvalidInput
from paceline_workers.config import EngineConfig
from paceline_workers.engine import sizing
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind
from paceline_workers.engine.model.config import ModelConfig
from paceline_workers.engine.page_files import PageFiles, file_bytes
from paceline_workers.engine.scheduling import Chunk, Request, StepPlan
from paceline_workers.engine.timer import Timer, quickest
from paceline_workers.messages import Sampling

_HOST = re.compile(r"DefaultCPUAllocator: (.*)", re.DOTALL)
_DEVICE = re.compile(r"out of memory\. (Tried to allocate [\d.]+ \w+)")
_TRIPS = 16
_PINNED = re.compile(r"(?:CUDA error: |^)(out of memory)(?: \(\d+\))?$", re.MULTILINE)


class Stages:
    """Seconds by stage of loading."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        begin = self._timer.now()
        yield
        self.seconds[name] = self._timer.now() - begin


@contextmanager
def memory_named(engine: EngineConfig) -> Iterator[None]:
    """Raise InvalidInput if memory cannot be allocated: another attempt would not find more."""
    try:
        yield
    except MemoryError as error:
        raise _lacking(_largest(engine), "memory", str(error)) from None
    except RuntimeError as error:
        text = str(error)
        if found := _DEVICE.search(text):
            raise _lacking(_largest_on_device(engine), "the GPU's memory", found[1]) from None
        if found := _HOST.search(text) or _PINNED.search(text):
            raise _lacking(_largest(engine), "memory", found[1].strip()) from None
        raise


def _lacking(field: str, memory: str, words: str) -> InvalidInput:
    return InvalidInput(field, f"does not fit into {memory} ({words}); make it smaller")


def _largest(engine: EngineConfig) -> str:
    """What to make smaller first: what the user has set, else the model."""
    return "engine.host_bytes" if engine.host_bytes else _largest_on_device(engine)


def _largest_on_device(engine: EngineConfig) -> str:
    sizes = {"kv_pages": engine.kv_pages, "kv_bytes": engine.kv_bytes}
    return next((f"engine.{name}" for name, size in sizes.items() if size), "model")


def page_files(
    engine: EngineConfig, settings: ModelConfig, folder: Path, page_bytes: int, layout: str
) -> PageFiles | None:
    """Pages on disk, named by everything besides tokens that their bytes depend on; `settings.shape` as computed."""
    limit = sizing.disk_pages(engine, page_bytes, file_bytes(page_bytes))
    if not limit or engine.disk_path is None:
        return None
    weights = [(path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in sorted(folder.iterdir())]
    computed = (engine.products, engine.batch_invariant)
    named = (settings, layout, computed, engine.page_tokens, torch.__version__, weights)
    return PageFiles.open(engine.disk_path, repr(named).encode(), page_bytes, limit)


def first_step() -> StepPlan:
    """One token into page 0, so that the first client does not wait for torch's first call."""
    request = Request("warm", 1, [0], 1, Sampling(temperature=0.0), 0.0, pages=[0])
    return StepPlan((Chunk(request, 0, 1, True),))


def copy_seconds(copy: Callable[[Sequence[Copy]], None], finish: Callable[[], None], timer: Timer) -> float:
    """Seconds to bring a page back: copies page 0 out and in, once to touch the memory and once timed."""
    round_trip = (Copy(CopyKind.OUT, 0, 0), Copy(CopyKind.IN, 0, 0))
    copy(round_trip)
    finish()

    def trips() -> None:
        copy(round_trip * _TRIPS)
        finish()

    return quickest(trips, timer) / (2 * _TRIPS)
