"""A driver that stands in for a GPU: Triton compiles for it, hands it what it would load, and it launches nothing.

So the launch functions themselves, called with tensors of the device "meta", say what a GPU would be given: their own
types, alignments and compile-time numbers, and not a list of signatures that goes stale. Known hole: what a program
computes, and how fast, only a GPU (or the interpreter, for the first) can say.
"""

from dataclasses import dataclass
from typing import Any

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime.driver import driver

HOPPER = 90
SHARED_LIMIT = 227 << 10
"""Bytes of shared memory that one program may have on sm_90."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """One compiled kernel: its name, its machine code, and what it was compiled with."""

    kernel: str
    cubin: bytes
    shared: int
    warps: int
    stages: int


class StandIn:
    """What Triton asks of a driver, answered for one sm_90 device; `loaded` is what it was given so far."""

    def __init__(self) -> None:
        self.loaded: list[Loaded] = []
        self.utils = self
        self._metadata: Any = None

    def get_current_target(self) -> GPUTarget:
        """What is compiled for."""
        return GPUTarget("cuda", HOPPER, 32)

    def get_active_torch_device(self) -> torch.device:
        """Where this driver's tensors would be."""
        return torch.device("cuda", 0)

    def get_current_device(self) -> int:
        """There is one."""
        return 0

    def get_current_stream(self, device: int) -> int:
        """And one stream."""
        return device

    def get_device_properties(self, device: int) -> dict[str, int]:
        """What is checked before a launch."""
        return {"max_shared_mem": SHARED_LIMIT, "max_num_regs": 65536, "warpSize": 32, "device": device}

    def launcher_cls(self, source: Any, metadata: Any) -> Any:
        """Called before `load_binary` of the same kernel; its result is called instead of a launch."""
        del source
        self._metadata = metadata
        return lambda *arguments: None  # noqa: ARG005 - whatever a launch would take

    def load_binary(self, name: str, binary: bytes, shared: int, device: int) -> tuple[object, int, int, int, int]:
        """Keep it; module, function, registers, spills, threads are what Triton wants back."""
        self.loaded.append(Loaded(name, binary, shared, self._metadata.num_warps, self._metadata.num_stages))
        return self, device, 0, 0, 1024

    def unload_module(self, module: object) -> None:
        """Nothing was loaded."""


def stand_in() -> StandIn:
    """Make it this process' driver. The process must not interpret, and launches nothing from now on."""
    device = StandIn()
    driver.set_active(device)
    return device
