"""What a GPU does beside its host, as a seam: streams, marks in them, page-locked memory, recorded graphs.

There are three lines of work: the compute stream, which is whatever stream is current, and two beside it, for pages
that leave the device and for pages that come back, since a GPU copies both ways at once. Each does its own work in
order, and nothing is in order between them but by marks; a mark stands behind all that its line has been given.
`HostDevice` is the CPU in a GPU's place, where everything is over when it returns, so that the same code runs in tests.
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
"""From the device to the host, or from there to the device."""


class DeviceEvent(Protocol):
    """A place in a line of work."""

    def over(self) -> bool:
        """All before it is done."""
        ...

    def wait(self) -> None:
        """The host waits until it is."""
        ...

    def hold(self) -> None:
        """What the current line is given from here on begins behind the mark."""
        ...

    def seconds_to(self, later: "DeviceEvent") -> float:
        """Between two marks that are over."""
        ...


class Device(Protocol):
    """Where a runner computes."""

    @property
    def where(self) -> torch.device:
        """The name that tensors take."""
        ...

    @property
    def processors(self) -> int:
        """How many programs run side by side, each with a processor of its own."""
        ...

    def pinned(self, size: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Host memory from and to which copies run beside the host; not for large ones, which it rounds up."""
        ...

    def lock(self, memory: Tensor) -> Tensor:
        """The same host memory, of any size, as fit for that as pinned memory. Raises MemoryError."""
        ...

    def mark(self) -> DeviceEvent:
        """Behind all that the current line has been given."""
        ...

    def beside(self, way: Way) -> AbstractContextManager[None]:
        """What is given within goes into this line beside the compute stream."""
        ...

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        """A way to do the same again, on the same tensors, for one launch; `compute` has run before as it is."""
        ...

    def finish(self) -> None:
        """The host waits for everything."""
        ...


def opened(device: torch.device) -> Device:
    return CudaDevice(device) if device.type == "cuda" else HostDevice()


@dataclass(frozen=True, slots=True)
class _DoneEvent:
    """Where nothing is ever under way: a mark is a time."""

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
    """A CPU: nothing runs beside anything, and a recorded graph is the function itself."""

    where: torch.device = field(default_factory=lambda: torch.device("cpu"))
    processors: int = 1

    def pinned(self, size: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Plain memory."""
        return torch.empty(list(size), dtype=dtype)

    def lock(self, memory: Tensor) -> Tensor:
        return memory

    def mark(self) -> DeviceEvent:
        return _DoneEvent()

    def beside(self, way: Way) -> AbstractContextManager[None]:  # noqa: ARG002 - there is nothing beside it
        return nullcontext()

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        return compute

    def finish(self) -> None:
        """It is."""


@dataclass(frozen=True, slots=True)
class _Event:
    """The host sleeps until it is over: one that span would count as at work, and the watchdog wait ten times as long
    for a kernel that hangs. It is woken some microseconds later, which the step behind hides."""

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
    """One GPU. All graphs share one pool of memory, since steps never overlap."""

    def __init__(self, device: torch.device) -> None:
        self.where = torch.device("cuda", torch.cuda.current_device() if device.index is None else device.index)
        torch.cuda.set_device(self.where)  # which takes none without a number
        self.processors = torch.cuda.get_device_properties(self.where).multi_processor_count
        ways: tuple[Way, ...] = ("out", "back")
        self._sides = {way: torch.cuda.Stream(self.where) for way in ways}  # type: ignore[no-untyped-call]
        self._graphs = torch.cuda.graph_pool_handle()

    def pinned(self, size: Sequence[int], dtype: torch.dtype) -> Tensor:
        """From torch's pool of pinned memory, which gives it to others only when the copies from and to it are over."""
        return torch.empty(list(size), dtype=dtype, pin_memory=True)

    def lock(self, memory: Tensor) -> Tensor:
        """Registered with the driver for as long as the tensor lives."""
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
