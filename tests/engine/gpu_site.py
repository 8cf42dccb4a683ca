"""A site for tests: the CPU in a GPU's place, with a memory that is what the test says."""

from collections.abc import Callable
from dataclasses import dataclass, field

from paceline_workers.engine.backends.gpu.backend import GpuContext
from paceline_workers.engine.backends.gpu.decoder import LAUNCHES, Kernels
from paceline_workers.engine.backends.gpu.device import Device, HostDevice
from paceline_workers.engine.backends.gpu.memory_profile import FreeMemory
from paceline_workers.engine.devices import Gpu

H100 = Gpu("NVIDIA H100 80GB HBM3", (9, 0))


@dataclass
class Told:
    """What is left and what a step takes on top; `tried`: how often somebody asked what a step takes."""

    said: FreeMemory
    step: int
    tried: list[int] = field(default_factory=list)

    def left(self) -> FreeMemory:
        return self.said

    def peak(self, run: Callable[[], None]) -> int:
        run()
        self.tried.append(self.step)
        return self.step


def site(
    left: FreeMemory, step: int = 0, *, gpu: Gpu = H100, kernels: Kernels = LAUNCHES, device: Device | None = None
) -> GpuContext:
    return GpuContext(gpu, device or HostDevice(), Told(left, step), kernels)
