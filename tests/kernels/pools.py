"""Paged contexts to run kernels on: pages in random order, with room between them that nobody may touch."""

from collections.abc import Sequence

import torch

from paceline_kernels.paging import Pages, Sequences


def pages(
    count: int, kv_heads: int, page_tokens: int, head_dim: int, *, dtype: torch.dtype, device: torch.device
) -> Pages:
    """A pool of one layer with random content."""
    shape = (count, kv_heads, 2, page_tokens, head_dim)
    return Pages(torch.randn(shape, device=device).to(dtype))


def sequences(lengths: Sequence[int], page_tokens: int, pool: int, device: torch.device) -> Sequences:
    """Contexts of these lengths in distinct pages of the pool, in random order; unused entries of the table are -1."""
    needed = [-(-length // page_tokens) for length in lengths]
    order = torch.randperm(pool)
    table = torch.full((len(lengths), max(*needed, 1)), -1, dtype=torch.int32)
    begin = 0
    for row, size in enumerate(needed):
        table[row, :size] = order[begin : begin + size]
        begin += size
    assert begin <= pool, "the pool is too small"
    numbers = torch.tensor(lengths, dtype=torch.int32, device=device)
    return Sequences(table.to(device), numbers, torch.zeros_like(numbers))
