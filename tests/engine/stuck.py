"""`python -m tests.engine.stuck --fd N`: an engine of the GPU's backend whose device hangs once it is loaded.

The CPU stands in for the device, references for the kernels. The host waits as it does for a GPU: asleep.
"""

import sys
import threading
from dataclasses import dataclass, field

import torch
from tests.engine.gpu_references import REFERENCES
from tests.engine.gpu_site import site

from paceline_workers.config import WorkerConfig
from paceline_workers.engine.__main__ import main
from paceline_workers.engine.backends.base import Backend, Pause
from paceline_workers.engine.backends.gpu.backend import TritonBackend
from paceline_workers.engine.backends.gpu.device import DeviceEvent, HostDevice
from paceline_workers.engine.backends.gpu.memory_profile import FreeMemory
from paceline_workers.engine.timer import Timer


@dataclass(frozen=True)
class Stuck(HostDevice):
    """Once `hangs` is set nothing that is begun is ever over."""

    hangs: threading.Event = field(default_factory=threading.Event)

    def mark(self) -> DeviceEvent:
        return Never(super().mark()) if self.hangs.is_set() else super().mark()


@dataclass(frozen=True)
class Never:
    """A mark behind a kernel that hangs."""

    made: DeviceEvent

    def over(self) -> bool:
        return False

    def wait(self) -> None:
        threading.Event().wait()

    def hold(self) -> None:
        pass

    def seconds_to(self, later: DeviceEvent) -> float:
        return self.made.seconds_to(later)


def load(settings: WorkerConfig, timer: Timer, pause: Pause) -> Backend:
    """In place of what looks for a GPU."""
    torch.set_num_threads(1)
    device = Stuck()
    backend = TritonBackend.load(
        settings.engine,
        settings.model,
        timer,
        pause,
        site(FreeMemory(1 << 30, 1 << 30), kernels=REFERENCES, device=device),
    )
    device.hangs.set()
    return backend


if __name__ == "__main__":
    sys.exit(main(load=load))
