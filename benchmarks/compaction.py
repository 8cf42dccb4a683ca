"""Whether it would pay to move pages side by side: attention of decodes over pages in order, and over the same pages
scattered over the pool, of a 125 M Llama's heads; and what moving all of them once would take.

One thread, processor time. Both orders alternate; what counts is the median of the ratios of neighbouring repetitions,
since whoever else uses the machine slows both. Compaction would pay if what a step gains made up for the moving before
the pages are given back; the last rows say after how many steps.
"""

import random
import time
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from typing import Any

import torch
from benchmarks.harness import Measured, Row, main, median_row

from paceline_planner.hardware import Dtype
from paceline_planner.shapes import ModelShape
from paceline_workers.engine.kv_cache.attention_window import ALL
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind
from paceline_workers.engine.model.attention import PagedCache
from paceline_workers.engine.model.batch import Batch
from paceline_workers.engine.scheduling import Chunk, Request, StepPlan
from paceline_workers.messages import Sampling

REQUESTS, CONTEXT = 8, 1024
SHAPE = ModelShape(
    name="125m", layers=2, hidden=768, heads=12, kv_heads=12, head_dim=64, ffn=2048, vocab=32000, max_context=CONTEXT,
    weight_dtype=Dtype.FP32, kv_dtype=Dtype.FP32,
)  # fmt: skip
PAGES = (16, 64)
REPEATS, QUICK_REPEATS = 200, 8


def measure(quick: bool) -> Measured:
    """Seconds of a layer's attention by page size and order."""
    torch.set_num_threads(1)
    rows: list[Row] = []
    for size in PAGES:
        pairs = list(_pairs(size, QUICK_REPEATS if quick else REPEATS))
        ratio = median(scattered / orderly for orderly, scattered in pairs)
        orderly, moving = median(pair[0] for pair in pairs), _moving(size)
        gained = (ratio - 1) * orderly
        rows += [
            median_row(f"scattered over in order, pages of {size}", [pair[1] / pair[0] for pair in pairs], "ratio"),
            Row(f"a layer's attention in order, pages of {size}", orderly * 1e6, "us"),
            Row(f"moving its pages once, pages of {size}", moving * 1e6, "us"),
            Row(f"steps until moving has paid, pages of {size}", moving / gained if gained > 0 else -1.0, "steps"),
        ]
    return rows, _details()


def _details() -> dict[str, Any]:
    return {"requests": REQUESTS, "context": CONTEXT, "note": "-1 steps: in order was no faster"}


@torch.inference_mode()
def _pairs(size: int, repeats: int) -> Iterator[tuple[float, float]]:
    """Seconds in order, and scattered."""
    each = CONTEXT // size
    total = 2 * REQUESTS * each
    cache, queries = PagedCache(SHAPE, total, size), torch.randn(REQUESTS, SHAPE.heads, SHAPE.head_dim)
    tables = (list(range(REQUESTS * each)), random.Random(1).sample(range(total), REQUESTS * each))
    layouts = [Batch.of(_plan(pages, each), size, SHAPE.kv_heads).layouts[ALL] for pages in tables]
    for _ in range(repeats):
        first, second = (_seconds(partial(cache.attend, 0, queries, layout)) for layout in layouts)
        yield first, second


def _seconds(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


def _plan(pages: list[int], each: int) -> StepPlan:
    tables = [pages[start : start + each] for start in range(0, len(pages), each)]
    return StepPlan(tuple(Chunk(_request(table), CONTEXT - 1, 1, True) for table in tables))


def _request(table: list[int]) -> Request:
    return Request("r", 1, [0] * CONTEXT, 1, Sampling(temperature=0.0), 0.0, pages=table)


def _moving(size: int) -> float:
    """Seconds to copy all pages of one layer to other places, the best of three."""
    count = REQUESTS * CONTEXT // size
    cache = PagedCache(SHAPE, 2 * count, size)
    copies = [Copy(CopyKind.DEVICE, page, count + page) for page in range(count)]
    return min(_seconds(partial(cache.copy, copies)) for _ in range(3)) / SHAPE.layers


if __name__ == "__main__":
    main("compaction", measure)
