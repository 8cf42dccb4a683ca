"""What the GPU must support and hold: shapes and types that kernels accept, and the room that a step leaves for pages.

Pages get USABLE of the device's memory, less what any process uses once the weights are loaded, and less the peak of
the largest step, measured by running it. The rest is for recorded graphs, compiled kernels and fragmentation.
Known hole: attention that needed more memory for longer contexts would be underestimated; ours uses fixed buffers.
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
"""The head dimensions that the kernels support."""
LEAST_PAGES = 2
"""The fewest pages that a configuration may set: with one, a page could never be copied."""
FP8 = (8, 9)
"""The lowest compute capability of GPUs that convert fp8 in hardware (Ada)."""
_DEAREST = Sampling(temperature=1.0, top_p=0.9, top_k=50, min_p=0.01, logprobs=20, repetition=1.1)


@dataclass(frozen=True, slots=True)
class FreeMemory:
    """Bytes of a device: in total, and free."""

    total: int
    free: int


class DeviceMemory(Protocol):
    """A device's memory."""

    def left(self) -> FreeMemory:
        """The free memory, after returning everything unused."""
        ...

    def peak(self, run: Callable[[], None]) -> int:
        """The most bytes that `run` uses in addition to what was used before."""
        ...


class CudaMemory:
    """The memory of the current CUDA device, as torch and the driver report it."""

    def left(self) -> FreeMemory:
        """As the driver reports it, after torch has returned its cached memory."""
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info()
        return FreeMemory(total, free)

    def peak(self, run: Callable[[], None]) -> int:
        """By torch's peak statistics."""
        self.left()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before


def check(engine: EngineConfig, shape: ModelShape, gpu: Gpu, page_bytes: int) -> None:
    """Raises InvalidInput if the kernels do not support the configuration."""
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
    """Bytes for pages, once weights are loaded; negative if a step alone needs too much."""
    return int(left.total * USABLE) - (left.total - left.free) - peak


def check_room(size: int, page_bytes: int, left: FreeMemory, gpu: Gpu) -> None:
    """Raises InvalidInput if `size` bytes do not hold two pages."""
    if size < LEAST_PAGES * page_bytes:
        raise InvalidInput(
            "model",
            f"its weights and a full step leave {max(size, 0) >> 20} MiB for pages on {gpu.name}, which has "
            f"{left.free >> 20} of {left.total >> 20} MiB free; end what else uses it, lower step_tokens or max_seqs, "
            "or take a larger one",
        )


def largest_step(limits: SchedulerLimits) -> StepPlan:
    """A step with as many tokens and drawn rows as possible, each drawn with every option that uses memory.

    All requests share pages from page 0 on; what is written there is never used.
    """
    count = max(min(limits.max_seqs, limits.step_tokens // 2), 1)
    each, more = divmod(limits.step_tokens, count)
    sizes = [min(each + (place < more), limits.max_model_len) for place in range(count)]
    return StepPlan(tuple(Chunk(_request(place, size, limits), 0, size, True) for place, size in enumerate(sizes)))


def pages_of(plan: StepPlan) -> int:
    """The pages that a pool must have for this plan."""
    return max(len(chunk.request.pages) for chunk in plan.chunks)


def _request(place: int, size: int, limits: SchedulerLimits) -> Request:
    pages = list(range(limits.pages(size)))
    name, most = f"largest {place}", _DEAREST.logprobs
    return Request(name, size, [0] * size, 1, _DEAREST, 0.0, pages=pages, prompt_logprobs=most)
