"""`python -m tests.engine.interpreted --fd N`: an engine process of the GPU's backend, interpreted on the CPU.

Production has no way here: `Site.open` makes its sites, and refuses the interpreter.
"""

import os
import sys

os.environ["TRITON_INTERPRET"] = "1"

import torch
from tests.engine.gpu_site import site

from paceline_workers.config import WorkerConfig
from paceline_workers.engine.__main__ import main
from paceline_workers.engine.backends.base import Backend, Pause
from paceline_workers.engine.backends.gpu.backend import TritonBackend
from paceline_workers.engine.backends.gpu.memory_profile import FreeMemory
from paceline_workers.engine.timer import Timer

MEMORY = FreeMemory(1 << 30, 1 << 30)


def load(settings: WorkerConfig, timer: Timer, pause: Pause) -> Backend:
    """In place of what looks for a GPU."""
    torch.set_num_threads(1)
    return TritonBackend.load(settings.engine, settings.model, timer, pause, site(MEMORY))


if __name__ == "__main__":
    sys.exit(main(load=load))
