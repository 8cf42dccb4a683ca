"""Calls the kernel."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.checks import ceil_div, check_tensor, expect_pages, power_of_2
from paceline_kernels.paging import Pages
from paceline_kernels.quantize import LEAST, LIMITS
from paceline_kernels.rope_append.kernel import rope_append_kernel


@dataclass(frozen=True, slots=True)
class Launch:
    """The most heads of a program, and its warps."""

    heads: int
    warps: int


LAUNCHES = {64: Launch(heads=16, warps=2), 128: Launch(heads=16, warps=4)}
"""By head_dim; first guesses until `make gpu` has chosen. 16 bytes a thread in 16-bit types; with more threads than
numbers in a half, angles are loaded as the heads need them and do not pass through shared memory."""
OTHERS = Launch(heads=16, warps=4)


def launch_for(head_dim: int) -> Launch:
    """From the table."""
    return LAUNCHES.get(head_dim, OTHERS)


def rope_append(
    qkv: Tensor,
    cos: Tensor,
    sin: Tensor,
    slots: Tensor,
    pages: Pages,
    *,
    query_norm: Tensor | None = None,
    key_norm: Tensor | None = None,
    eps: float = 0.0,
    out: Tensor | None = None,
    launch: Launch | None = None,
) -> Tensor:
    """qkv [tokens, (heads + 2 * kv heads) * head_dim]: queries to `out` [tokens, heads, head_dim], the rest to pages.

    cos, sin [tokens, head_dim / 2] float32; slots [tokens] int64: page * page_tokens + place within it, -1: not
    written. Norm weights [head_dim] float32, both or none. No slot may occur twice, except -1.
    """
    _check_pages(pages)
    check_tensor("qkv", qkv, -1, -1)
    (tokens, width), dim, kv_heads = qkv.shape, pages.head_dim, pages.kv_heads
    heads = width // dim - 2 * kv_heads
    if heads < 1 or width % dim:
        raise ValueError(f"qkv has rows of {width}; (heads + 2 * {kv_heads}) * {dim} is needed")
    _check_rows(cos, sin, slots, tokens, dim)
    _check_norms(query_norm, key_norm, dim)
    out = torch.empty((tokens, heads, dim), dtype=qkv.dtype, device=qkv.device) if out is None else out
    check_tensor("out", out, tokens, heads, dim)
    launch = launch or launch_for(dim)
    block, kv_block = (min(launch.heads, power_of_2(count)) for count in (heads, kv_heads))
    parts = ceil_div(heads, block) + 2 * ceil_div(kv_heads, kv_block)
    if tokens:
        rope_append_kernel[(tokens * parts,)](
            qkv,
            cos,
            sin,
            slots,
            pages.data,
            pages.data if pages.scales is None else pages.scales,
            cos if query_norm is None else query_norm,
            cos if key_norm is None else key_norm,
            out,
            eps,
            LEAST,
            HEADS=heads,
            KV_HEADS=kv_heads,
            HEAD_DIM=dim,
            PAGE_TOKENS=pages.page_tokens,
            BLOCK=block,
            KV_BLOCK=kv_block,
            NORMS=query_norm is not None,
            LIMIT=LIMITS.get(pages.data.dtype, 0.0),
            ROUNDS=pages.data.dtype == torch.int8,
            num_warps=launch.warps,
        )
    return out


def _check_pages(pages: Pages) -> None:
    expect_pages(pages)
    if pages.head_dim < 4 or pages.head_dim & (pages.head_dim - 1):
        raise ValueError(f"pages.data has a head_dim of {pages.head_dim}; a power of two from 4 on is needed")


def _check_rows(cos: Tensor, sin: Tensor, slots: Tensor, tokens: int, dim: int) -> None:
    for name, tensor in (("cos", cos), ("sin", sin)):
        check_tensor(name, tensor, tokens, dim // 2)
    check_tensor("slots", slots, tokens)
    if slots.dtype != torch.int64:
        raise ValueError(f"slots are {slots.dtype}; they have to be int64")


def _check_norms(query_norm: Tensor | None, key_norm: Tensor | None, dim: int) -> None:
    if (query_norm is None) != (key_norm is None):
        raise ValueError("query_norm and key_norm go together; pass both or none")
    for name, weight in (("query_norm", query_norm), ("key_norm", key_norm)):
        if weight is not None:
            check_tensor(name, weight, dim)
