"""What a GPU is asked to hold: shapes and types that kernels take, and the room that a step leaves for pages.

Pages get USABLE of the device less what is in use once the weights are loaded, by any process, and less the most that
the largest step takes, measured by running one. The rest is for recorded graphs, compiled kernels and fragments.
Known hole: an attention that needed more for longer contexts would be measured short; ours works in fixed buffers.
"""

import gc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

from paceline_core.errors import InvalidInput
from paceline_kernels.paging import PAGE_TOKENS
from paceline_kernels.work_list.launch import MOST_SEQUENCES
from paceline_planner.memory import USABLE
from paceline_planner.shapes import ModelShape
from paceline_workers.config import EngineConfig
from paceline_workers.engine.devices import Gpu
from paceline_workers.engine.scheduling import Chunk, Request, SchedulerLimits, StepPlan
from paceline_workers.messages import Sampling

HEAD_DIMS = (16, 32, 64, 128, 256)
"""Numbers in a head that the kernels take."""
LEAST_PAGES = 2
"""As many as a configuration must ask for: with one, a page could never be copied."""
FP8 = (8, 9)
"""The compute capability from which on GPUs convert fp8 themselves (Ada)."""
_DEAREST = Sampling(temperature=1.0, top_p=0.9, top_k=50, min_p=0.01, logprobs=20, repetition=1.1)


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Bytes of a device: all it has, and those that are free."""

    total: int
    free: int


class DeviceMemory(Protocol):
    """A device's memory."""

    def left(self) -> FreeMemory:
        """Once all is given back that nothing refers to."""
        ...

    def peak(self, run: Callable[[], None]) -> int:
        """The most bytes that `run` takes on top of what is taken before."""
        ...


class CudaMemory:
    """Of the current CUDA device, by torch's own books and the driver's."""

    def left(self) -> FreeMemory:
        """As the driver reports, with what torch only keeps for later given back."""
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return FreeMemory(total, free)

    def peak(self, run: Callable[[], None]) -> int:
        """By torch's high-water mark."""
        self.left()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before


def check(engine: EngineConfig, shape: ModelShape, gpu: Gpu, page_bytes: int) -> None:
    """Raises InvalidInput where the kernels do not take what is asked for."""
    least = LEAST_PAGES * page_bytes
    if engine.kv_pages is None and engine.kv_bytes is not None and engine.kv_bytes < least:
        raise InvalidInput("engine.kv_bytes", f"{engine.kv_bytes} bytes do not hold two pages, {least}; give more")
    if engine.max_seqs > MOST_SEQUENCES:
        raise InvalidInput("engine.max_seqs", f"{engine.max_seqs} is over the {MOST_SEQUENCES} of GPUs; lower it")
    if engine.page_tokens not in PAGE_TOKENS:
        sizes = ", ".join(map(str, PAGE_TOKENS))
        raise InvalidInput("engine.page_tokens", f"{engine.page_tokens} is no size of page on GPUs; use one of {sizes}")
    if engine.batch_invariant:
        raise InvalidInput("engine.batch_invariant", "is for CPUs in this version; compute on cpu, or leave it out")
    if shape.head_dim not in HEAD_DIMS:
        sizes = ", ".join(map(str, HEAD_DIMS))
        raise InvalidInput(
            "model", f"its heads of {shape.head_dim} numbers are not computed on GPUs ({sizes} are); compute it on cpu"
        )
    if engine.kv_dtype == "fp8" and gpu.capability < FP8:
        raise InvalidInput("engine.kv_dtype", f"{gpu.name} does not convert fp8; write int8 or bf16, or leave it out")


def room(left: FreeMemory, peak: int) -> int:
    """Bytes for pages, once weights are loaded; below 0 where a step alone is too much."""
    return int(left.total * USABLE) - (left.total - left.free) - peak


def check_room(size: int, page_bytes: int, left: FreeMemory, gpu: Gpu) -> None:
    """Raises InvalidInput where `size` bytes do not hold two pages."""
    if size < LEAST_PAGES * page_bytes:
        raise InvalidInput(
            "model",
            f"its weights and a full step leave {max(size, 0) >> 20} MiB for pages on {gpu.name}, which has "
            f"{left.free >> 20} of {left.total >> 20} MiB free; end what else uses it, lower step_tokens or max_seqs, "
            "or take a larger one",
        )


def largest_step(limits: SchedulerLimits) -> StepPlan:
    """As many tokens and drawn rows as a step can have, each drawn with all that takes memory.

    All requests share pages from page 0 on; what is written there is of no use to anybody.
    """
    count = max(min(limits.max_seqs, limits.step_tokens // 2), 1)
    each, more = divmod(limits.step_tokens, count)
    sizes = [min(each + (place < more), limits.max_model_len) for place in range(count)]
    return StepPlan(tuple(Chunk(_request(place, size, limits), 0, size, True) for place, size in enumerate(sizes)))


def pages_of(plan: StepPlan) -> int:
    """Pages that a pool must have for it."""
    return max(len(chunk.request.pages) for chunk in plan.chunks)


def _request(place: int, size: int, limits: SchedulerLimits) -> Request:
    pages = list(range(limits.pages(size)))
    name, most = f"largest {place}", _DEAREST.logprobs
    return Request(name, size, [0] * size, 1, _DEAREST, 0.0, pages=pages, prompt_logprobs=most)
