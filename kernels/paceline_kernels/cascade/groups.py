"""Which sequences of a step begin with the same pages.

Members of a group stand side by side in the batch. Those that share with nobody form a group too, of a prefix of no
tokens, so that every row has its group and nothing is left to fill.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from paceline_kernels.paged_prefill import Tiles
from paceline_kernels.paging import Sequences


@dataclass(frozen=True, slots=True)
class Groups:
    """`prefixes`: one sequence a group; `starts` [groups + 1] int32: its members' first row; `tiles` of all members."""

    prefixes: Sequences
    starts: Tensor
    tiles: Tiles

    @classmethod
    def of(
        cls,
        counts: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        page_tokens: int,
        device: torch.device | str,
        group: int = 1,
    ) -> "Groups":
        """So many members a group, who begin with these whole pages; `group` query heads share a kv head."""
        lengths = [len(pages) * page_tokens for pages in prefixes]
        table = torch.zeros((len(prefixes), max(map(len, prefixes), default=0) or 1), dtype=torch.int32)
        for row, pages in enumerate(prefixes):
            table[row, : len(pages)] = torch.tensor(pages, dtype=torch.int32)
        numbers = torch.tensor([lengths, [0] * len(lengths)], dtype=torch.int32).to(device)
        starts = torch.tensor([0, *accumulate(counts)], dtype=torch.int32).to(device)
        shared = Sequences(table.to(device), numbers[0], numbers[1])
        return cls(shared, starts, Tiles.of(counts, lengths, device, group))
