"""Matrix products of a 125 M Llama's shapes, packed against plain, by rows and type: what `products` rests on.

One thread. Every product is taken of the next of many weights, together larger than caches, as in a step; plain and
packed alternate, and each counts with its best repetition, since neighbours only add time. A quiet machine is needed
all the same: who shares the memory bus changes single figures by half.
"""

import time
from collections.abc import Iterator
from itertools import cycle
from typing import Any

import torch
from benchmarks.harness import Bar, Measured, Row, main
from torch import Tensor

from paceline_workers.engine.backends.cpu.linear import Linear, LinearFactory

SHAPES = ((4096, 768), (1280, 768), (768, 2048), (32000, 768))
"""[out, in]: gate and up, query key value, down, output matrix."""
ROWS, QUICK_ROWS = (1, 2, 3, 4, 8, 16, 32, 64, 256), (1, 8, 64)
REPEATS, QUICK_REPEATS = 60, 12
WORKING_SET = 128 << 20
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
BATCHED = range(4, 17)
"""Rows for which packing must pay."""


def measure(quick: bool) -> Measured:
    """Speed-ups, and microseconds beside them."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    details: dict[str, Any] = {}
    for shape in SHAPES[:2] if quick else SHAPES:
        for name, dtype in TYPES.items():
            for count, plain, packed in _times(shape, dtype, quick=quick):
                title = f"{shape[0]} x {shape[1]}, {name}, {count} rows"
                bar = Bar(1.0, at_least=True) if count in BATCHED else None
                rows.append(Row(f"plain over packed, {title}", plain / packed, "ratio", bar=bar))
                details[title] = {"plain_us": plain * 1e6, "packed_us": packed * 1e6}
    return rows, {"times": details}


@torch.inference_mode()
def _times(shape: tuple[int, int], dtype: torch.dtype, *, quick: bool) -> Iterator[tuple[int, float, float]]:
    """Rows, and seconds of the plain and of the packed product."""
    copies = max(WORKING_SET // (shape[0] * shape[1] * dtype.itemsize), 1)
    weights = [torch.randn(shape).to(dtype) for _ in range(copies)]
    plain, packed = (cycle([LinearFactory(kind).linear(weight) for weight in weights]) for kind in ("plain", "packed"))
    for count in QUICK_ROWS if quick else ROWS:
        x = torch.randn(count, shape[1]).to(dtype)
        pairs = [(_seconds(plain, x), _seconds(packed, x)) for _ in range(QUICK_REPEATS if quick else REPEATS)]
        yield count, min(pair[0] for pair in pairs), min(pair[1] for pair in pairs)


def _seconds(linears: Iterator[Linear], x: Tensor) -> float:
    layer = next(linears)
    begin = time.perf_counter()
    layer(x)
    return time.perf_counter() - begin


if __name__ == "__main__":
    main("products", measure)
