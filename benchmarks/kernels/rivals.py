"""Torch's own attention over the same contexts: SDPA on contiguous keys and values, flex_attention on pages."""

from functools import partial
from typing import Any

import torch
from benchmarks.kernels.contexts import Contexts
from benchmarks.kernels.timing import Call, Contestant
from torch import Tensor
from torch.nn.attention.experimental._paged_attention import PagedAttention
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

from paceline_kernels.paging import Pages, Sequences

FLEX_PAGE = 128


def contiguous(pages: Pages, sequences: Sequences) -> tuple[Tensor, Tensor]:
    """Keys and values [sequences, kv heads, tokens, head_dim] of sequences that all are equally long."""
    length = int(sequences.lengths[0])
    found = pages.data[sequences.table.long()]  # [sequences, pages, kv heads, 2, page_tokens, head_dim]
    keys, values = found.permute(3, 0, 2, 1, 4, 5).flatten(3, 4)[:, :, :, :length].contiguous()
    return keys, values


def sdpa(made: Contexts) -> Contestant:
    """With grouped heads, one query a sequence."""
    query = made.query.transpose(1, 2)

    def call(keys: Tensor, values: Tensor) -> Tensor:
        found = scaled_dot_product_attention(query, keys, values, scale=made.rule.scale, enable_gqa=True)
        return found.transpose(1, 2)

    return Contestant([partial(call, *contiguous(pages, made.sequences)) for pages in made.pools])


def flex(made: Contexts) -> Contestant:
    """Through torch's helper for pages, which gives each sequence pages of its own size in one long pool."""
    query = made.query.transpose(1, 2).contiguous()
    attend: Any = torch.compile(flex_attention, dynamic=False, fullgraph=True) if query.is_cuda else flex_attention
    count, length = len(made.sequences), int(made.sequences.lengths[0])
    pager, mask = _paged(count, length, query.device)

    def call(keys: Tensor, values: Tensor) -> Tensor:
        found: Tensor = attend(query, keys, values, block_mask=mask, scale=made.rule.scale, enable_gqa=True)
        return found.transpose(1, 2)

    calls: list[Call] = []
    for pages in made.pools:
        keys, values = contiguous(pages, made.sequences)
        room = [torch.empty((1, keys.shape[1], count * length, keys.shape[3])).to(keys) for _ in range(2)]
        everything = torch.arange(length, device=keys.device).repeat(count, 1)
        pager.assign(torch.arange(count, device=keys.device), everything, keys, values, room[0], room[1])
        calls.append(partial(call, *room))
    return Contestant(calls)


def _paged(count: int, length: int, device: torch.device) -> tuple[PagedAttention, Any]:
    pager = PagedAttention(count * length // FLEX_PAGE, FLEX_PAGE, count, device=str(device))
    for row in range(count):
        pager.reserve(torch.tensor(row, device=device), torch.tensor(length, device=device))
    return pager, pager.convert_logical_block_mask(_everything(count, length, device))


def _everything(count: int, length: int, device: torch.device) -> BlockMask:
    """Each sequence's blocks in order, all of them wholly in sight, none in part."""
    blocks = length // FLEX_PAGE
    order = torch.arange(blocks, dtype=torch.int32, device=device).expand(count, 1, 1, blocks).contiguous()
    every = torch.full((count, 1, 1), blocks, dtype=torch.int32, device=device)
    none = (torch.zeros_like(every), torch.zeros_like(order))
    return BlockMask.from_kv_blocks(*none, every, order, BLOCK_SIZE=FLEX_PAGE, seq_lengths=(1, length))
