"""`python -m tests.engine.gpu_variants FOLDER ENGINES`: what a GPU would compile while a mixed load is served.

Triton is asked without a GPU: a driver stands in, and each launch stops where Triton would begin to compile, with all
that the compilation depends on (types, alignments, numbers that it takes for constants). What a kernel should have
written its reference writes. Says of each engine, as JSON, how many the warm-up asks for and which ones come after it:
since nothing is ever compiled, no engine is spared what another has asked for.
"""

import json
import random
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
import triton
from benchmarks.kernels.standin import stand_in
from tests.engine.driver import Driver
from tests.engine.gpu_references import REFERENCES
from tests.engine.gpu_site import site
from tests.engine.manual import ManualTimer

from paceline_workers.config import EngineConfig
from paceline_workers.engine.backends.gpu.backend import TritonBackend
from paceline_workers.engine.backends.gpu.decoder import LAUNCHES, Kernels
from paceline_workers.engine.backends.gpu.memory_profile import FreeMemory
from paceline_workers.messages import Sampling

ENGINE: dict[str, Any] = {"max_seqs": 5, "step_tokens": 160, "max_model_len": 300, "batch_window_s": {}}
LENGTHS = (1, 250, 2, 3, 15, 16, 17, 64, 65, 130)
SAMPLINGS = (
    Sampling(temperature=0.0),
    Sampling(temperature=0.8, seed=3),
    Sampling(temperature=1.0, top_k=5, top_p=0.9, min_p=0.01, logprobs=3, seed=4),
    Sampling(temperature=0.7, repetition=1.2, presence=0.1, frequency=0.1, bias={3: 1.0}),
)


def both(launch: Callable[..., Any], reference: Callable[..., Any]) -> Callable[..., Any]:
    """Asks for the kernel, and does what it would."""

    def call(*args: Any, **kwargs: Any) -> Any:
        launch(*args, **kwargs)
        return reference(*args, **kwargs)

    return call


def kernels() -> Kernels:
    names = [entry.name for entry in fields(Kernels)]
    return Kernels(**{name: both(getattr(LAUNCHES, name), getattr(REFERENCES, name)) for name in names})


def serve(backend: TritonBackend) -> None:
    """Prompts of many lengths, alone and together, in chunks, with preemptions, forks and all ways to draw."""
    chance = random.Random(9)
    run = Driver(backend, ahead=True)
    for number in range(12):
        prompt = [chance.randrange(200) for _ in range(LENGTHS[number % len(LENGTHS)])]
        for choice in range(chance.choice((1, 1, 3))):
            group = f"g{number}"
            run.submit(f"{group} {choice}", prompt, chance.randrange(1, 12), SAMPLINGS[number % 4], group=group)
        for _ in range(chance.randrange(6)):
            run.step()
    run.drain()


def asked_by(folder: Path, **engine: Any) -> dict[str, Any]:
    asked: dict[str, str] = {}

    def hook(*, key: str, repr: str, **_: Any) -> bool:  # noqa: A002 - Triton's word
        asked.setdefault(key, repr)
        return True

    triton.knobs.runtime.jit_cache_hook = hook
    settings, timer = EngineConfig.model_validate(ENGINE | engine), ManualTimer()
    where = site(FreeMemory(64 << 20, 64 << 20), kernels=kernels())
    backend = TritonBackend.load(settings, f"file://{folder}", timer, timer.pause, where)
    warm = len(asked)
    serve(backend)
    return {"warm": warm, "late": list(asked.values())[warm:]}


if __name__ == "__main__":
    torch.set_num_threads(1)
    stand_in()
    found = {name: asked_by(Path(sys.argv[1]), **engine) for name, engine in json.loads(sys.argv[2]).items()}
    sys.stdout.write(json.dumps(found) + "\n")
