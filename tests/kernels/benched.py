"""A benchmark's run on a small model, timed by a made-up clock."""

from collections.abc import Callable
from itertools import count

import torch
from benchmarks.kernels.bench import Bench, Limit, Limits, Model
from benchmarks.kernels.timing import Contestant, Timer

MODEL = Model(heads=2, kv_heads=1, head_dim=16, page=16, hidden=32, ffn=32, layers=2, vocab=64)


class MadeUp:
    """Runs all copies once; then what is prepared first takes 1 us a call, the second 2 us, and so on."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def prepare(self, contestant: Contestant) -> Callable[[], float]:
        contestant.once()
        number = next(self._numbers)
        return lambda: number * 1e-6


def benched(device: torch.device, timer: Timer) -> Bench:
    limits = Limits(Limit(4.3e12, "copy rate"), Limit(780e12, "matmul rate"))
    kind = torch.bfloat16 if device.type == "cuda" else torch.float32
    return Bench(MODEL, device, kind, timer, 2, limits, multiprocessors=1, cache=1)
