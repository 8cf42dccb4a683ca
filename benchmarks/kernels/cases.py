"""Launches that stand for all: each kernel in the types and shapes that choose its numbers, on tensors without memory.

`CASES` holds calls of the public launch functions. The shapes are those of an 8B Llama (32 query heads on 8 heads of
keys and values of 128 numbers, pages of 64 tokens), and a second size of head where a table has a row for it.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from paceline_kernels.add_rmsnorm.launch import add_rmsnorm
from paceline_kernels.copy_blocks.launch import copy_blocks
from paceline_kernels.paging import Pages
from paceline_kernels.rope_append.launch import rope_append
from paceline_kernels.silu_mul.launch import silu_mul

HEADS, KV_HEADS, HEAD_DIM, PAGE = 32, 8, 128, 64
HIDDEN, FFN, VOCAB = 4096, 14336, 128256
TOKENS, LAYERS, POOL = 64, 32, 4096
BF16, F16, F32, I64, I32 = torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.int32
NARROW = {"fp8": torch.float8_e4m3fn, "int8": torch.int8}
KINDS = {"bf16": BF16, **NARROW}
"""What pages may hold, in 16 bits one type for both."""


@dataclass(frozen=True, slots=True)
class Case:
    """One launch, named by its kernel's folder and what is special about it."""

    name: str
    call: Callable[[], object]


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


CASES: tuple[Case, ...] = (*_small(),)
