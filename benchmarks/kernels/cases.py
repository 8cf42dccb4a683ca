"""Launches that stand for all: each kernel in the types and shapes that choose its numbers, on tensors without memory.

`CASES` holds calls of the public launch functions. The shapes are those of an 8B Llama (32 query heads on 8 heads of
keys and values of 128 numbers, pages of 64 tokens), and a second size of head where a table has a row for it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

import torch
from benchmarks.kernels.segments import fixed_segments
from torch import Tensor

from paceline_kernels.add_rmsnorm.launch import add_rmsnorm
from paceline_kernels.copy_blocks.launch import copy_blocks, gather_pages, scatter_pages
from paceline_kernels.paged_decode.launch import launch_for, paged_decode
from paceline_kernels.paged_prefill import Tiles, paged_prefill
from paceline_kernels.paging import AttentionMask, Pages, Sequences
from paceline_kernels.rope_append.launch import rope_append
from paceline_kernels.sample.launch import Scratch, sample
from paceline_kernels.sample.state import SampleOutput, SamplerState
from paceline_kernels.silu_mul.launch import silu_mul
from paceline_kernels.work_list.launch import Work, plan_work

HEADS, KV_HEADS, HEAD_DIM, PAGE = 32, 8, 128, 64
HIDDEN, FFN, VOCAB = 4096, 14336, 128256
TOKENS, LAYERS, POOL = 64, 32, 4096
MULTIPROCESSORS = 132
BF16, F16, F32, I64, I32 = torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.int32
NARROW = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
KINDS = {"bf16": BF16, **NARROW}
"""What pages may hold, in 16 bits one type for both."""
Types = tuple[torch.dtype, torch.dtype]
"""Of queries and of pages."""


@dataclass(frozen=True, slots=True)
class Case:
    """One launch, named by its kernel's folder and what is special about it.

    `resident`: programs of a multiprocessor that its table counts on, by kernel. `spilled`: bytes that are accepted.
    """

    name: str
    call: Callable[[], object]
    resident: Mapping[str, int] = field(default_factory=dict)
    spilled: int = 0


def blank(*shape: int, dtype: torch.dtype = BF16) -> Tensor:
    """A tensor that has everything but memory."""
    return torch.empty(shape, dtype=dtype, device="meta")


def blank_pages(dtype: torch.dtype = BF16, head_dim: int = HEAD_DIM) -> Pages:
    """One layer's pool."""
    shape = (POOL, KV_HEADS, 2, PAGE, head_dim)
    scales = blank(*shape[:4], dtype=F32) if dtype in NARROW.values() else None
    return Pages(blank(*shape, dtype=dtype), scales)


def _rope_append(dtype: torch.dtype, head_dim: int, *, norms: bool) -> object:
    qkv = blank(TOKENS, (HEADS + 2 * KV_HEADS) * head_dim)
    angle = blank(TOKENS, head_dim // 2, dtype=F32)
    norm = blank(head_dim, dtype=F32) if norms else None
    slots = blank(TOKENS, dtype=I64)
    return rope_append(qkv, angle, angle, slots, blank_pages(dtype, head_dim), query_norm=norm, key_norm=norm)


def _add_rmsnorm(hidden: int) -> object:
    residual, weight = blank(TOKENS, hidden, dtype=F32), blank(hidden, dtype=F32)
    return add_rmsnorm(blank(TOKENS, hidden), residual, weight, 1e-5)


def _small() -> Iterator[Case]:
    for name, dtype in KINDS.items():
        yield Case(f"rope_append {name}", partial(_rope_append, dtype, HEAD_DIM, norms=False))
    yield Case("rope_append bf16, norms, head_dim 64", partial(_rope_append, BF16, 64, norms=True))
    for hidden in (1024, HIDDEN, 16384):
        yield Case(f"add_rmsnorm, hidden {hidden}", partial(_add_rmsnorm, hidden))
    yield Case("silu_mul", lambda: silu_mul(blank(TOKENS, 2 * FFN)))
    pool = (LAYERS, POOL, KV_HEADS, 2, PAGE, HEAD_DIM)
    yield Case("copy_blocks", lambda: copy_blocks(blank(*pool), blank(8, 2, dtype=I64)))
    staging = blank(8, LAYERS, *pool[2:])
    yield Case("copy_blocks, gathered", lambda: gather_pages(blank(*pool), blank(8, dtype=I64), staging))
    yield Case("copy_blocks, scattered", lambda: scatter_pages(blank(*pool), blank(8, dtype=I64), staging))


def _sequences() -> Sequences:
    table, numbers = blank(TOKENS, 512, dtype=I32), blank(TOKENS, dtype=I32)
    return Sequences(table, numbers, numbers)


def _paged_decode(types: Types, head_dim: int, queries: int, rule: AttentionMask, *, sinks: bool = False) -> object:
    dtype, kind = types
    pages, rows = blank_pages(kind, head_dim), HEADS // KV_HEADS * queries
    launch = launch_for(dtype, kind, head_dim, rows)
    programs = launch.programs * MULTIPROCESSORS
    work = Work.empty(TOKENS, KV_HEADS, rows, head_dim, programs, torch.device("meta"), tile=launch.tile)
    query = blank(TOKENS, queries, HEADS, head_dim, dtype=dtype)
    logits, lse = (blank(HEADS, dtype=F32), blank(*query.shape[:3], dtype=F32)) if sinks else (None, None)
    plan_work(_sequences(), PAGE, rule, work, queries)
    return paged_decode(query, pages, _sequences(), rule, work, sink_logits=logits, out=query, lse=lse)


def _paged_prefill(types: Types, head_dim: int, tokens: int, rule: AttentionMask) -> object:
    dtype, kind = types
    query, starts = blank(TOKENS * tokens, HEADS, head_dim, dtype=dtype), blank(TOKENS + 1, dtype=I32)
    tiles = Tiles.of((tokens,) * TOKENS, (4096,) * TOKENS, "meta", HEADS // KV_HEADS)
    return paged_prefill(query, starts, blank_pages(kind, head_dim), _sequences(), rule, tiles, out=query)


def _decode(name: str, kind: torch.dtype, queries: int, spilled: int = 0) -> Case:
    launch = launch_for(BF16, kind, HEAD_DIM, HEADS // KV_HEADS * queries)
    call = partial(_paged_decode, (BF16, kind), HEAD_DIM, queries, AttentionMask(scale=0.1))
    return Case(f"paged_decode {name}, {queries} queries", call, {"decode_kernel": launch.programs}, spilled)


def _prefill(name: str, kind: torch.dtype, rule: AttentionMask) -> Case:
    call = partial(_paged_prefill, (BF16, kind), HEAD_DIM, 512, rule)
    return Case(name, call, {"prefill_kernel": 2 if kind == BF16 else 1})


def _attention() -> Iterator[Case]:
    plain, bent = AttentionMask(scale=0.1), AttentionMask(scale=0.1, window=1024, first=4, cap=50.0)
    for name, kind in KINDS.items():
        # 3.9 spills so much where 3.6 spills nothing, and a third program is worth more than ten registers
        yield _decode(name, kind, 1, spilled=0 if kind == BF16 else 40)
        yield _decode(name, kind, 8, spilled=24 if kind == BF16 else 0)
        yield _prefill(f"paged_prefill {name}", kind, plain)
        yield Case(f"paged_prefill {name}, 8 tokens", partial(_paged_prefill, (BF16, kind), HEAD_DIM, 8, plain))
    for name, types in {"bf16 queries, fp32 pages": (BF16, F32), "fp32 queries, bf16 pages": (F32, BF16)}.items():
        yield Case(f"paged_decode, {name}", partial(_paged_decode, types, HEAD_DIM, 1, plain), spilled=16)
        yield Case(f"paged_prefill, {name}", partial(_paged_prefill, types, HEAD_DIM, 512, plain), spilled=16)
    yield Case("paged_decode, window, cap, sinks", partial(_paged_decode, (BF16, BF16), HEAD_DIM, 1, bent, sinks=True))
    yield Case("paged_decode, head_dim 64", partial(_paged_decode, (BF16, BF16), 64, 1, plain))
    yield _prefill("paged_prefill, window, cap", BF16, bent)


def _sample(rows: int) -> object:
    numbers, state = blank(rows, dtype=I32), SamplerState.empty(rows, VOCAB, "meta")
    scratch, drawn = Scratch.empty(rows, VOCAB, "meta"), SampleOutput.empty(rows, "meta")
    return sample(blank(rows, VOCAB), numbers, numbers, state, scratch, drawn)


def _sampling() -> Iterator[Case]:
    for rows in (1, TOKENS):
        yield Case(f"sample, {rows} rows", partial(_sample, rows), spilled=64)  # under 3.9 alone


def _ablation(rows: int) -> object:
    query, numbers = blank(rows, 1, HEADS, HEAD_DIM), blank(rows, dtype=I32)
    sequences = Sequences(blank(rows, 512, dtype=I32), numbers, numbers)
    return fixed_segments(query, blank_pages(), sequences, 0.1, out=query)


def _rivals() -> Iterator[Case]:
    yield Case("fixed segments, cut", partial(_ablation, 8))
    yield Case("fixed segments, whole", partial(_ablation, TOKENS))


CASES: tuple[Case, ...] = (*_attention(), *_small(), *_sampling(), *_rivals())
