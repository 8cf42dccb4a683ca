"""The work list in plain Python: the result that the kernel must produce, and the arithmetic of visible tiles.

Contexts are read in tiles of `tile` tokens. The visible tiles of each (sequence, kv head) are numbered from 0: first
those with first tokens (the head), then those from the first one in the window on. The work is all of them in a row,
sequence by sequence and head by head; program `p` takes numbers `p * share` to `(p + 1) * share`.
"""

from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from paceline_kernels.paging import AttentionMask, Sequences

ENTRY = ("count", "segment", "tile", "page", "sequence", "length", "tiles", "dropped")
"""A program's start: `count` tiles, from `tile` of `segment` on, which is in `page` of the pool.

A segment is a kv head of a sequence: place in `live` * kv heads + head. The rest is that place's row. A program without
work has a `count` and a `sequence` of 0; the rest of its entry is left from an earlier step.
"""
LIVE = ("sequence", "length", "tiles", "dropped")
"""A sequence with something visible: its number, its tokens, the visible tiles of one head, missing pages."""


@dataclass(frozen=True, slots=True)
class Split:
    """How the work is split: tiles of `tile` tokens, for `programs`, each but the last with at least `least` tiles."""

    kv_heads: int
    programs: int
    tile: int
    least: int


def first_tiles(rule: AttentionMask, tile: int) -> int:
    """Tiles that hold the first tokens; 0 without a window."""
    return 0 if rule.window is None else -(-rule.first // tile)


def visible_tiles(length: int, queries: int, rule: AttentionMask, tile: int) -> int:
    """The visible tiles of one head, for the last `queries` tokens of `length`."""
    count = -(-length // tile)
    if rule.window is None:
        return count
    head = min(first_tiles(rule, tile), count)
    begin = max(max(length - queries, 0) - rule.window + 1, 0) // tile
    return head + count - max(begin, head)


def plan(
    sequences: Sequences, page_tokens: int, rule: AttentionMask, split: Split, queries: int = 1
) -> tuple[Tensor, Tensor]:
    """Entries [programs, 8] and live [live sequences, 4] as `ENTRY` and `LIVE` name them; idle programs are zeros."""
    lengths, dropped = sequences.lengths.tolist(), sequences.dropped.tolist()
    sizes = [visible_tiles(length, queries, rule, split.tile) for length in lengths]
    rows = zip(range(len(sizes)), lengths, sizes, dropped, strict=True)
    live = [row for row in rows if row[2]]
    starts = list(accumulate((tiles for _, _, tiles, _ in live for _ in range(split.kv_heads)), initial=0))
    share = max(-(-starts[-1] // split.programs), split.least)
    entries = torch.zeros((split.programs, len(ENTRY)), dtype=torch.int32)
    for program, begin in enumerate(range(0, starts[-1], share)):
        segment = bisect_right(starts, begin) - 1
        sequence, length, tiles, gone = live[segment // split.kv_heads]
        tile = begin - starts[segment]
        number = text_tile(tile, length, tiles, rule, split.tile) * split.tile // page_tokens
        page = sequences.table[sequence, number - gone * (number >= rule.head(page_tokens))]
        count = min(share, starts[-1] - begin)
        entries[program] = torch.tensor([count, segment, tile, page, sequence, length, tiles, gone])
    return entries, torch.tensor(live, dtype=torch.int32).view(-1, len(LIVE))


def text_tile(tile: int, length: int, tiles: int, rule: AttentionMask, size: int) -> int:
    """The number in the text of a visible tile: those after the head follow a gap."""
    return tile if tile < first_tiles(rule, size) else tile - tiles - -length // size
