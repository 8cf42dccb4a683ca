"""What a GPU does concurrently with its host, as a protocol: streams, marks in them, page-locked memory, graphs.

There are three streams: the compute stream, which is the current one, and two others, for pages that leave the device
and for pages that come back, because a GPU copies in both directions at once. Each stream works in order; only marks
order work between streams. A mark comes after everything that its stream has been given.
`HostDevice` is the CPU in a GPU's place: every call is complete when it returns, so tests can run the same code.
"""

import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

Way = Literal["out", "back"]
"""The direction of copies: from the device to the host, or back."""


class DeviceEvent(Protocol):
    """A mark in a stream."""

    def over(self) -> bool:
        """Whether everything before it is done."""
        ...

    def wait(self) -> None:
        """Block the host until it is."""
        ...

    def hold(self) -> None:
        """Everything given to the current stream from now on begins after the mark."""
        ...

    def seconds_to(self, later: "DeviceEvent") -> float:
        """The time between two marks that are over."""
        ...


class Device(Protocol):
    """The device that a runner computes on."""

    @property
    def where(self) -> torch.device:
        """Its name for tensors."""
        ...

    @property
    def processors(self) -> int:
        """How many programs run in parallel, each on its own processor."""
        ...

    def pinned(self, size: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Host memory for copies that run concurrently with the host; not for large ones, whose size it rounds up."""
        ...

    def lock(self, memory: Tensor) -> Tensor:
        """Make existing host memory, of any size, fit for such copies too. Raises MemoryError."""
        ...

    def mark(self) -> DeviceEvent:
        """A mark after everything that the current stream has been given."""
        ...

    def beside(self, way: Way) -> AbstractContextManager[None]:
        """Within the block, work goes into this stream next to the compute stream."""
        ...

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        """A function that repeats `compute` on the same tensors with one launch; `compute` must have run before."""
        ...

    def finish(self) -> None:
        """Block the host until everything is done."""
        ...


def opened(device: torch.device) -> Device:
    return CudaDevice(device) if device.type == "cuda" else HostDevice()


@dataclass(frozen=True, slots=True)
class _DoneEvent:
    """A mark on a device where every call is complete at once: a time."""

    at: float = field(default_factory=time.perf_counter)

    def over(self) -> bool:
        return True

    def wait(self) -> None:
        pass

    def hold(self) -> None:
        pass

    def seconds_to(self, later: DeviceEvent) -> float:
        assert isinstance(later, _DoneEvent)
        return later.at - self.at


@dataclass(frozen=True)
class HostDevice:
    """A CPU: nothing runs concurrently, and a recorded graph is the function itself."""

    where: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processors: int = 1

    def pinned(self, size: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Plain memory."""
        return torch.empty(list(size), dtype=dtype)

    def lock(self, memory: Tensor) -> Tensor:
        return memory

    def mark(self) -> DeviceEvent:
        return _DoneEvent()

    def beside(self, way: Way) -> AbstractContextManager[None]:  # noqa: ARG002 - there is only one stream
        return nullcontext()

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        return compute

    def finish(self) -> None:
        """Nothing to wait for."""


@dataclass(frozen=True, slots=True)
class _Event:
    """The host sleeps until it is over: spinning would count as work, and the watchdog would wait ten times as long for
    a kernel that hangs. The host wakes some microseconds late, which the following step hides."""

    event: torch.cuda.Event

    def over(self) -> bool:
        return bool(self.event.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        self.event.synchronize()

    def hold(self) -> None:
        self.event.wait()

    def seconds_to(self, later: DeviceEvent) -> float:
        assert isinstance(later, _Event)
        return float(self.event.elapsed_time(later.event)) / 1e3


class CudaDevice:
    """One GPU. All graphs share one memory pool, because steps never overlap."""

    def __init__(self, device: torch.device) -> None:
        self.where = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(self.where)  # it needs a device with a number
        self.processors = torch.cuda.get_device_properties(self.where).multi_processor_count
        ways: tuple[Way, ...] = ("out", "back")
        self._sides = {way: torch.cuda.Stream(self.where) for way in ways}  # type: ignore[no-untyped-call]
        self._graphs = torch.cuda.graph_pool_handle()

    def pinned(self, size: Sequence[int], dtype: torch.dtype) -> Tensor:
        """From torch's pool of pinned memory, which reuses it only when the copies from and to it are done."""
        return torch.empty(list(size), dtype=dtype, pin_memory=True)

    def lock(self, memory: Tensor) -> Tensor:
        """Registers it with the driver for as long as the tensor lives."""
        if memory.nbytes:
            address, runtime = memory.data_ptr(), torch.cuda.cudart()  # type: ignore[no-untyped-call]
            if code := int(runtime.cudaHostRegister(address, memory.nbytes, 0)):
                raise MemoryError(f"the driver locks no {memory.nbytes} bytes of host memory (its error {code})")
            weakref.finalize(memory, runtime.cudaHostUnregister, address).atexit = False
        return memory

    def mark(self) -> DeviceEvent:
        event = torch.cuda.Event(enable_timing=True, blocking=True)  # type: ignore[no-untyped-call]
        event.record()
        return _Event(event)

    def beside(self, way: Way) -> AbstractContextManager[None]:
        return torch.cuda.stream(self._sides[way])

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self._graphs):
            compute()
        return graph.replay

    def finish(self) -> None:
        torch.cuda.synchronize(self.where)
