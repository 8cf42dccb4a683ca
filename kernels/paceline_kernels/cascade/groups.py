"""Which sequences of a step begin with the same pages.

Members of a group stand side by side in the batch. Those that share with nobody form a group too, of a prefix of no
tokens, so that every row has its group and nothing is left to fill. Few members and a long prefix would be work for a
few programs, so prefixes are cut into parts, each attended to as a context of its own.
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
    """`prefixes`: one sequence for each part and group, part by part; `tiles` of all their rows.

    `starts` [parts * groups + 1] int32: the first row of each, the members' rows coming again for each part.
    """

    prefixes: Sequences
    starts: Tensor
    tiles: Tiles
    parts: int

    @classmethod
    def of(
        cls,
        counts: Sequence[int],
        prefixes: Sequence[Sequence[int]],
        page_tokens: int,
        device: torch.device | str,
        group: int = 1,
        programs: int = 32,
        least: int = 512,
    ) -> "Groups":
        """So many members a group, who begin with these whole pages; `group` query heads share a kv head.

        `programs`: how many shall be at work on a kv head; two for each multiprocessor, dealt to 8 heads, are 32.
        `least`: tokens of a prefix that are worth a part.
        """
        tiles = len(Tiles.of(counts, [0] * len(counts), "cpu", group).list)
        longest = max(map(len, prefixes), default=0) * page_tokens
        parts = max(min(programs // max(tiles, 1), longest // least), 1)
        cut = [part for number in range(parts) for part in _cut(prefixes, number, parts)]
        lengths = [len(pages) * page_tokens for pages in cut]
        numbers = torch.tensor([lengths, [0] * len(lengths)], dtype=torch.int32).to(device)
        starts = torch.tensor([0, *accumulate(list(counts) * parts)], dtype=torch.int32).to(device)
        shared = Sequences(_table(cut).to(device), numbers[0], numbers[1])
        return cls(shared, starts, Tiles.of(list(counts) * parts, lengths, device, group), parts)


def _cut(prefixes: Sequence[Sequence[int]], number: int, parts: int) -> list[Sequence[int]]:
    sizes = [-(-len(pages) // parts) for pages in prefixes]
    return [pages[number * size : (number + 1) * size] for pages, size in zip(prefixes, sizes, strict=True)]


def _table(tables: Sequence[Sequence[int]]) -> Tensor:
    width = max(map(len, tables), default=0) or 1
    rows = [[*pages, *[0] * (width - len(pages))] for pages in tables]
    return torch.tensor(rows, dtype=torch.int32).view(-1, width)
