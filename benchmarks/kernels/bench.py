"""What every part of this area is given: where it runs, how it is timed, and what this GPU can do at most."""

import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

import torch
from benchmarks.harness import Bar, Row
from benchmarks.kernels.timing import Contestant, EventTimer, GraphTimer, Seconds, Timer, rounds
from torch import Tensor

COPIED, QUICK_COPIED = 4 << 30, 1 << 30
MATMUL = 8192
BEYOND_CACHE = 4
"""Data that is passed over between two visits of the same byte, in sizes of the cache."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What this GPU does in a second at most, as it was measured in this run, and what that is called."""

    rate: float
    name: str


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of a copy (read and written ones counted), and operations of a product in bf16."""

    copy: Limit
    matmul: Limit


@dataclass(frozen=True, slots=True)
class Model:
    """Numbers of the model whose attention and layers are measured; those of an 8B Llama."""

    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128
    page: int = 64
    hidden: int = 4096
    ffn: int = 14336
    layers: int = 32
    vocab: int = 128256

    @property
    def group(self) -> int:
        """Query heads that share keys and values."""
        return self.heads // self.kv_heads

    @property
    def width(self) -> int:
        """Of a row of queries, keys and values."""
        return (self.heads + 2 * self.kv_heads) * self.head_dim

    @property
    def kv_bytes(self) -> int:
        """Of one token's keys and values in one layer, in sixteen bits."""
        return self.kv_heads * 2 * self.head_dim * 2


@dataclass(frozen=True, slots=True)
class Bench:
    """One run: `multiprocessors` and `cache` (bytes) of the GPU, its limits, and the seconds of everything timed."""

    model: Model
    device: torch.device
    dtype: torch.dtype
    timer: Timer
    turns: int
    limits: Limits
    multiprocessors: int
    cache: int
    times: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def compare(self, title: str, contestants: Mapping[str, Contestant]) -> dict[str, list[float]]:
        """Prepare all contestants, and time them."""
        return self.timed(title, {name: self.timer.prepare(one) for name, one in contestants.items()})

    def timed(self, title: str, prepared: Mapping[str, Seconds]) -> dict[str, list[float]]:
        """Seconds of each contestant, round by round; kept under `title`."""
        self.times[title] = rounds(prepared, self.turns)
        return self.times[title]

    def randn(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Random numbers: zeros would be multiplied faster."""
        return torch.randn(shape, device=self.device, dtype=self.dtype if dtype is None else dtype)

    def empty(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Room for a result."""
        return torch.empty(shape, device=self.device, dtype=self.dtype if dtype is None else dtype)

    def copies(self, size: int, most: int = 64) -> int:
        """Of data of so many bytes, so that none is still in the cache when its turn comes again."""
        return min(max(2, 1 + -(-BEYOND_CACHE * self.cache // max(size, 1))), most)


Part = Callable[[Bench], Iterable[Row]]
REFUSAL = """error: no GPU: torch {version} finds no CUDA device here, and there is nothing else to measure on.
Run {command} on a machine with one; nothing is downloaded there.
What can be said without one: `python -m benchmarks.kernels.compiled`."""


def require_gpu(command: str) -> None:
    """Exit with 2, and say what is missing for `command`, where torch finds no CUDA device."""
    if not torch.cuda.is_available():
        print(REFUSAL.format(version=torch.__version__, command=command), file=sys.stderr)
        sys.exit(2)


def tried(name: str, rows: Callable[[], Iterable[Row]]) -> Iterator[Row]:
    """The rows, and if they end in an error a last one for that: a GPU is at hand too seldom to lose the others."""
    try:
        yield from rows()
    except Exception:  # noqa: BLE001 - whatever a kernel, a compiler or a rival raises
        traceback.print_exc()
        yield missing(name, "did not finish")


def missing(name: str, why: str) -> Row:
    """A row that stands for those that were not measured, and misses its bar."""
    return Row(f"{name}: {why}", 1, "failures", bar=Bar(0))


def share_row(name: str, times: Sequence[float], work: float, limit: Limit, least: float | None = None) -> Row:
    """How much of a limit was reached: `work` (bytes or operations) over the times, as a share of the limit."""
    shares = [work / seconds / limit.rate for seconds in times]
    bar = None if least is None else Bar(least, at_least=True)
    return Row(name, median(shares), f"of {limit.name}", spread=max(shares) - min(shares), bar=bar)


def microseconds_row(name: str, times: Sequence[float], most: float | None = None) -> Row:
    """The time itself, for what is short."""
    us = [seconds * 1e6 for seconds in times]
    return Row(name, median(us), "us", spread=max(us) - min(us), bar=None if most is None else Bar(most))


def ratio_row(name: str, ratios: Sequence[float], least: float | None = None) -> Row:
    """The median of the rounds' ratios."""
    bar = None if least is None else Bar(least, at_least=True)
    return Row(name, median(ratios), "ratio", spread=max(ratios) - min(ratios), bar=bar)


def on_gpu(*, quick: bool) -> Bench:
    """A run on this machine's GPU, its limits measured."""
    found = torch.cuda.get_device_properties(0)
    turns = 3 if quick else 9
    return Bench(
        Model(),
        torch.device("cuda"),
        torch.bfloat16,
        GraphTimer(),
        turns,
        limits(QUICK_COPIED if quick else COPIED, turns),
        found.multi_processor_count,
        found.L2_cache_size,
    )


def limits(size: int, turns: int) -> Limits:
    """Copy `size` bytes, and multiply two random matrices; the medians count."""
    source = torch.randn(size // 4, device="cuda")
    target = torch.empty_like(source)
    left, right = (torch.randn(MATMUL, MATMUL, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    product = torch.empty_like(left)
    work = {"copy": lambda: target.copy_(source), "matmul": lambda: torch.mm(left, right, out=product)}
    times = rounds({name: EventTimer().prepare(Contestant((call,))) for name, call in work.items()}, turns)
    copied, multiplied = 2 * size / median(times["copy"]), 2 * MATMUL**3 / median(times["matmul"])
    return Limits(Limit(copied, "copy rate"), Limit(multiplied, "matmul rate"))


def described(bench: Bench) -> dict[str, Any]:
    """The GPU that the figures belong to, its limits, and all times in microseconds."""
    return {
        "gpu": torch.cuda.get_device_name(0),
        "multiprocessors": bench.multiprocessors,
        "cache_bytes": bench.cache,
        "cuda": torch.version.cuda,
        "copy_bytes_per_s": bench.limits.copy.rate,
        "matmul_flop_per_s": bench.limits.matmul.rate,
        "times_us": {
            title: {name: [seconds * 1e6 for seconds in times] for name, times in found.items()}
            for title, found in bench.times.items()
        },
    }
