"""Divides the rows of a step among programs; the host does so, because a prefill is eager.

A tile is some tokens of one chunk with `packed` query heads each, all of one kv head: they share its keys, and with
several heads a short chunk fills a tile. All tiles of a launch have one size, that of its longest chunk: a short chunk
next to a long one wastes products, but its tile still takes hardly longer than its pages take to load.
The longest contexts come first, so that the remaining work at the end is short.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

ROWS = 128
"""The rows of the largest tile."""
_FEWEST = 16
"""The fewest rows of a product on tensor cores."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """`list` [tiles, 2] int32: sequence, and the first of its chunk's tokens; `rows` in a tile, a power of two."""

    list: Tensor
    rows: int
    packed: int = 1

    @classmethod
    def of(
        cls,
        counts: Sequence[int],
        lengths: Sequence[int],
        device: torch.device | str,
        group: int = 1,
        rows: int | None = None,
    ) -> "Tiles":
        """For chunks of these lengths, the ends of contexts of these lengths; `group` query heads share a kv head.

        `rows`: of a tile; None chooses it by the longest chunk.
        """
        size = rows or _rows(max(counts, default=1) * group)
        packed = group if group <= size else 1
        found = _longest_first(counts, lengths, size // packed)
        return cls(_sent(found, torch.device(device)), size, packed)


def _rows(needed: int) -> int:
    return min(max(1 << (needed - 1).bit_length(), _FEWEST), ROWS)


def _longest_first(counts: Sequence[int], lengths: Sequence[int], tokens: int) -> list[tuple[int, int]]:
    tiles = [(row, first) for row, count in enumerate(counts) for first in range(0, count, tokens)]
    ends = {tile: lengths[tile[0]] - counts[tile[0]] + tile[1] for tile in tiles}
    return sorted(tiles, key=lambda tile: -ends[tile])


def _sent(tiles: list[tuple[int, int]], device: torch.device) -> Tensor:
    """From pinned memory, so that the host does not wait for the copy."""
    found = torch.tensor(tiles, dtype=torch.int32, pin_memory=device.type == "cuda").view(-1, 2)
    return found.to(device, non_blocking=True)
