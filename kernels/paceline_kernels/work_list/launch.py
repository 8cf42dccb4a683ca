"""The buffers of one step's work list, and the kernel that fills them on the device.

Equal shares across the borders of heads and sequences (LeanAttention, arXiv 2405.10480; stream-K): a program has at
most one part of a head at its beginning and one at its end, so two partials for each program are enough for any batch,
and between replays of a graph only data on the device change.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.checks import ceil_div, power_of_2
from paceline_kernels.paging import PAGE_TOKENS, AttentionMask, Sequences
from paceline_kernels.work_list.kernel import plan_kernel
from paceline_kernels.work_list.reference import ENTRY, LIVE

_BLOCK = 16
"""Programs whose entries one program of the planning grid writes."""

MOST_SEQUENCES = 1024
"""The most places in a batch."""


@dataclass(frozen=True, slots=True)
class Work:
    """`entries` [programs, 8] and `live` [sequences, 4] int32, with the columns `reference.ENTRY` and `LIVE`.

    Partials of program p: `partials` [2 * programs, rows, head_dim] and their logarithms `lses` [2 * programs, rows]
    to base 2, float32; 2p holds the end of a head that began before the program, 2p + 1 the beginning of one that
    continues after it. `rows`: query rows that share a kv head: heads / kv heads * queries. `tile`: tokens that are
    read at once, at most a page. `least`: the fewest tiles that are worth a program.
    """

    entries: Tensor
    live: Tensor
    partials: Tensor
    lses: Tensor
    kv_heads: int
    tile: int
    least: int

    @classmethod
    def empty(
        cls,
        sequences: int,
        kv_heads: int,
        rows: int,
        head_dim: int,
        programs: int,
        device: torch.device,
        *,
        tile: int = 64,
        least: int = 2,
    ) -> "Work":
        """Memory for this many places in a batch, at most 1,024, and a grid of `programs`."""
        if not 0 < sequences <= MOST_SEQUENCES:
            raise ValueError(f"sequences: {sequences} is not between 1 and {MOST_SEQUENCES}; split the batch")
        if tile not in PAGE_TOKENS:
            raise ValueError(f"tile: {tile} is none of {PAGE_TOKENS}")
        return cls(
            entries=torch.zeros((programs, len(ENTRY)), dtype=torch.int32, device=device),
            live=torch.zeros((sequences + 1, len(LIVE)), dtype=torch.int32, device=device),
            partials=torch.empty((2 * programs, rows, head_dim), dtype=torch.float32, device=device),
            lses=torch.empty((2 * programs, rows), dtype=torch.float32, device=device),
            kv_heads=kv_heads,
            tile=tile,
            least=least,
        )

    @property
    def sequences(self) -> int:
        """The most places in a batch; `live` has one more row, which the last program reads ahead."""
        return len(self.live) - 1

    @property
    def programs(self) -> int:
        """The grid."""
        return len(self.entries)

    def tile_of(self, page_tokens: int) -> int:
        """Tokens read at once from pages of this size."""
        return min(self.tile, page_tokens)


def plan_work(sequences: Sequences, page_tokens: int, rule: AttentionMask, work: Work, queries: int = 1) -> None:
    """Divide the contexts of a step among programs; once for each rule, before its layers, for `queries` a sequence.

    A length of 0 is no work. Lengths and dropped pages are read on the device.
    """
    if len(sequences) > work.sequences:
        raise ValueError(f"sequences: {len(sequences)} do not fit into work for {work.sequences}")
    plan_kernel[(ceil_div(work.programs, _BLOCK),)](
        sequences.lengths,
        sequences.dropped,
        sequences.table,
        work.entries,
        work.live,
        len(sequences),
        sequences.table.stride(0),
        PROGRAMS=work.programs,
        LEAST=work.least,
        KV_HEADS=work.kv_heads,
        QUERIES=queries,
        PAGE=page_tokens,
        TILE=work.tile_of(page_tokens),
        WINDOW=rule.window or 0,
        FIRST=0 if rule.window is None else rule.first,
        PLACES=power_of_2(work.sequences),
        BLOCK=_BLOCK,
    )
