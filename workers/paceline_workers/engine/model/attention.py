"""Keys and values in pages, and attention over them, which gathers a sequence's pages head by head.

The configuration sets the pages' type. Chunks of several tokens attend through torch's fused kernel in the type of the
queries; single tokens through two products in float32, for which the fused kernel takes twice as long.

Layout [page, kv head, token, head_dim]: a sequence's tokens are gathered for each head in blocks, a block being one
page's tokens of one head, in the layout that matrix products need. The content of a page after the last token is stale
but finite, and masked. What single tokens attend to stays from step to step (`GatherCache`); chunks gather their whole
context, at the speed of a plain copy. With `batch_invariant` both attend page by page, in float32 (`invariant`).

`GatherCache`: if a step's single tokens are those of the layer's last step one token on (`follows`), the gathered rows
lack only that token. Only a request's own tokens and copies write to a page that it holds, so a copy into a page drops
everything; a preemption, a fork, a moving window or a request that starts or ends changes which tokens attend to what,
and that group is gathered again. The kept rows are equal bit for bit to those gathered again.
Known limit: one request that starts or ends makes its whole group be gathered again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from paceline_planner.shapes import ModelShape
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind, digest_of
from paceline_workers.engine.model import invariant
from paceline_workers.engine.model.batch import Layout, Singles, Span, View
from paceline_workers.engine.model.weights import TORCH_TYPES
from paceline_workers.engine.page_files import PageFiles

ROOM = 256 << 20
"""The most bytes that all layers keep together; groups beyond that are gathered in every step."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Keys and values [rows * kv heads, places, head_dim] in float32, of all tokens that `singles` may see."""

    singles: Singles
    keys: Tensor
    values: Tensor


class GatherCache:
    """What one layer gathered in its last step, as far as there is room."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._last: list[Gathered] = []

    def before(self, singles: Singles) -> Gathered | None:
        """The gathered rows that these continue, if any."""
        return next((gathered for gathered in self._last if follows(singles, gathered.singles)), None)

    def keep(self, step: Sequence[Gathered]) -> None:
        """Keep everything of this step, and nothing of earlier ones."""
        self._last, left = [], self._room
        for gathered in step:
            if gathered.keys.nbytes + gathered.values.nbytes <= left:
                left -= gathered.keys.nbytes + gathered.values.nbytes
                self._last.append(gathered)

    def forget(self) -> None:
        """Other writers have changed pages: drop everything."""
        self._last = []


def follows(singles: Singles, before: Singles) -> bool:
    """Whether these are the same requests in the same order, one token on, in no more pages than the longest had."""
    pairs = zip(singles.views, before.views, strict=False)
    return singles.blocks.shape == before.blocks.shape and all(_one_on(view, other) for view, other in pairs)


def _one_on(view: View, before: View) -> bool:
    """Whether this is the same request one token on, in the same pages and perhaps a new one."""
    same = view.chunk.request is before.chunk.request and view.chunk.start == before.chunk.start + 1
    return same and view.pages[: len(before.pages)] == before.pages


_WRITES = (CopyKind.DEVICE, CopyKind.IN)
"""Copies into a page."""
ROWS = 64
"""Rows of a chunk that attend by pages at a time."""


class PagedCache:
    """The KV pool of all layers, zero at first so that no page ever holds a NaN; slots in host memory, and files."""

    def __init__(  # noqa: PLR0913 - where pages can be, and how they are read
        self,
        shape: ModelShape,
        pages: int,
        page_tokens: int,
        host_pages: int = 0,
        files: PageFiles | None = None,
        *,
        batch_invariant: bool = False,
    ) -> None:
        dtype, page = TORCH_TYPES[shape.kv_dtype], (shape.kv_heads, page_tokens, shape.head_dim)
        self._pool = torch.zeros((shape.layers, 2, pages, *page), dtype=dtype)
        self._host = torch.zeros((host_pages, shape.layers, 2, *page), dtype=dtype)
        # by layer, keys and values: these views are made once, because making them would be noticeable in a short step
        self._blocks = [[part.flatten(0, 1) for part in layer] for layer in self._pool]
        self._slots = [[part.flatten(0, 1) for part in layer] for layer in self._blocks]
        self._caches = [GatherCache(ROOM // shape.layers) for _ in range(shape.layers)]
        self._scale = shape.head_dim**-0.5
        self._files = files
        self._by_pages = invariant.Attention.of(page_tokens, shape.head_dim) if batch_invariant else None

    def copy(self, copies: Sequence[Copy]) -> None:
        """Move whole pages, in order: a later copy may overwrite what an earlier one has read."""
        if any(copy.kind in _WRITES for copy in copies):
            for cache in self._caches:
                cache.forget()
        for copy in copies:
            match copy.kind:
                case CopyKind.DEVICE:
                    self._page(copy.target).copy_(self._page(copy.source))
                case CopyKind.OUT:
                    self._host[copy.target].copy_(self._page(copy.source))
                case CopyKind.IN:
                    self._page(copy.target).copy_(self._host[copy.source])
                case _ if self._files is not None:
                    self._exchange(copy, self._files)

    def _exchange(self, copy: Copy, files: PageFiles) -> None:
        """Copy bytes between a host slot and a file's buffer."""
        match copy.kind:
            case CopyKind.SAVE:
                files.save(digest_of(copy.target), self._host[copy.source].view(torch.uint8).numpy().tobytes())
            case CopyKind.LOAD:
                slot = self._host[copy.target]
                data = torch.frombuffer(files.take(digest_of(copy.source)), dtype=torch.uint8)
                slot.copy_(data.view(slot.dtype).view(slot.shape))
            case CopyKind.ERASE:
                files.erase(digest_of(copy.source))

    def _page(self, page: int) -> Tensor:
        """[layers, 2, kv heads, page_tokens, head_dim] of one page."""
        return self._pool[:, :, page]

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store [tokens, kv heads, head_dim] of one layer at `slots` [tokens * kv heads]."""
        for pool, fresh in zip(self._slots[layer], (keys, values), strict=True):
            pool.index_copy_(0, slots, fresh.flatten(0, 1).to(pool.dtype))

    def attend(self, layer: int, queries: Tensor, layout: Layout) -> Tensor:
        """Causal attention of [tokens, heads, head_dim] to what `write` has stored; returns the same shape."""
        out = torch.empty(queries.shape, dtype=queries.dtype)
        for span in layout.spans:
            out[span.rows] = self._span(layer, queries[span.rows], span)
        step = [self._gathered(layer, singles) for singles in layout.singles]
        for gathered in step:
            rows = gathered.singles.rows
            out.index_copy_(0, rows, self._singles(queries.index_select(0, rows), gathered))
        self._caches[layer].keep(step)
        return out

    def _gathered(self, layer: int, singles: Singles) -> Gathered:
        before = self._caches[layer].before(singles)
        if before is None:
            return Gathered(singles, *self._gather(layer, singles.blocks, torch.float32))
        for gathered, pool in zip((before.keys, before.values), self._slots[layer], strict=True):
            fresh = pool.index_select(0, singles.slots).float()  # one more token a row [rows * kv heads, head_dim]
            gathered.flatten(0, 1).index_copy_(0, singles.places, fresh)
        return Gathered(singles, before.keys, before.values)

    def _gather(self, layer: int, blocks: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values of `blocks` [heads, n]: each [heads, n * page_tokens, head_dim]."""
        shape, flat = (len(blocks), -1, self._pool.shape[-1]), blocks.flatten()
        keys, values = self._blocks[layer]
        return keys.index_select(0, flat).view(shape).to(dtype), values.index_select(0, flat).view(shape).to(dtype)

    def _span(self, layer: int, queries: Tensor, span: Span) -> Tensor:
        if self._by_pages is not None:
            return _span_by_pages(self._by_pages, queries, *self._gather(layer, span.blocks, torch.float32), span.mask)
        key, value = self._gather(layer, span.blocks, queries.dtype)
        query = queries.transpose(0, 1)
        mixed = scaled_dot_product_attention(
            query[None], key[None], value[None], attn_mask=span.mask, scale=self._scale, enable_gqa=True
        )
        return mixed[0].transpose(0, 1)

    def _singles(self, queries: Tensor, gathered: Gathered) -> Tensor:
        """The query heads of one kv head act as a sequence's queries, so no key is copied for them."""
        keys, values = gathered.keys, gathered.values
        grouped = queries.reshape(len(keys), -1, queries.shape[-1]).float()
        if self._by_pages is not None:
            mixed = self._by_pages(grouped, keys, values, gathered.singles.mask)
            return mixed.reshape(queries.shape).to(queries.dtype)
        scores = torch.baddbmm(gathered.singles.mask, grouped, keys.transpose(1, 2), alpha=self._scale)
        return torch.bmm(scores.softmax(-1), values).view_as(queries).to(queries.dtype)


def _span_by_pages(
    attend: invariant.Attention, queries: Tensor, keys: Tensor, values: Tensor, visible: Tensor
) -> Tensor:
    """Attention of queries [tokens, heads, head_dim], ROWS at a time to keep the scores of long prompts small."""
    mixed = []
    for part, seen in zip(torch.split(queries, ROWS), torch.split(visible, ROWS), strict=True):
        grouped = part.float().view(len(part), len(keys), -1, part.shape[-1]).transpose(0, 1)
        mask = torch.zeros(seen.shape).masked_fill_(~seen, -inf).repeat_interleave(grouped.shape[2], 0)
        out = attend(grouped.flatten(1, 2), keys, values, mask[None])
        mixed.append(out.reshape(grouped.shape).transpose(0, 1).flatten(1, 2))
    return torch.cat(mixed).to(queries.dtype)
