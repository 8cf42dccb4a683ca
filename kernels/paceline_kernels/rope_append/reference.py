"""Norm, rotation and writing, as the CPU's decoder computes them."""

import torch
from torch import Tensor

from paceline_kernels.paging import Pages
from paceline_kernels.quantize import quantize


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
) -> Tensor:
    """qkv [tokens, (heads + 2 * kv heads) * head_dim]: returns queries [tokens, heads, head_dim], writes the rest.

    cos, sin [tokens, head_dim / 2]; slots [tokens]: page * page_tokens + place within it, -1: not written.
    """
    rows = qkv.view(len(qkv), -1, pages.head_dim).float()
    kv = pages.kv_heads
    queries, keys, values = rows.split_with_sizes([rows.shape[1] - 2 * kv, kv, kv], dim=1)
    _write(pages, slots, rotate(norm(keys, key_norm, eps), cos, sin), values)
    return rotate(norm(queries, query_norm, eps), cos, sin).to(qkv.dtype)


def norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Root mean square norm of each head; x itself without a weight."""
    return x if weight is None else x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight.float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate a head's two halves against each other."""
    first, second = x.chunk(2, dim=-1)
    cos, sin = cos.float()[:, None], sin.float()[:, None]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _write(pages: Pages, slots: Tensor, keys: Tensor, values: Tensor) -> None:
    """Both [tokens, kv heads, head_dim]."""
    valid = slots >= 0
    page, place = slots[valid] // pages.page_tokens, slots[valid] % pages.page_tokens
    fresh = torch.stack((keys, values), dim=2)[valid]
    if pages.scales is None:
        pages.data[page, :, :, place] = fresh.to(pages.data.dtype)
    else:
        pages.data[page, :, :, place], pages.scales[page, :, :, place] = quantize(fresh, pages.data.dtype)
