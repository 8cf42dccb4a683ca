"""Keys and values in pages, and attention over them by gathering a sequence's pages and torch's fused kernel.

The pages' type is the configuration's; attention computes in the type of the queries.

Layout [slot, kv head, head_dim], slots page by page: a gathered context is one contiguous copy, and the kernel reads
its heads by stride. What lies in a page behind the last token is old but finite, and masked. Known hole: each layer
gathers the whole context again; large pages keep that near the speed of a plain copy.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from paceline_planner.shapes import ModelShape
from paceline_workers.engine.memory.copies import Copy, CopyKind
from paceline_workers.engine.memory.offload import digest_of
from paceline_workers.engine.model.batch import Layout, Singles, Span
from paceline_workers.engine.model.weights import TORCH_TYPES
from paceline_workers.engine.pagefiles import PageFiles


class PagedCache:
    """The KV pool of all layers, zero at first so that no page ever holds a NaN; slots in host memory, and files."""

    def __init__(
        self, shape: ModelShape, pages: int, page_tokens: int, host_pages: int = 0, files: PageFiles | None = None
    ) -> None:
        size = (shape.layers, 2, pages * page_tokens, shape.kv_heads, shape.head_dim)
        dtype = TORCH_TYPES[shape.kv_dtype]
        self._pool = torch.zeros(size, dtype=dtype)
        host = (host_pages, shape.layers, 2, page_tokens, shape.kv_heads, shape.head_dim)
        self._host = torch.zeros(host, dtype=dtype)
        self._page_tokens = page_tokens
        self._files = files

    def copy(self, copies: Sequence[Copy]) -> None:
        """Move whole pages, one after another: a later copy may overwrite what an earlier one has read."""
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
        """Bytes between a host slot and what is written or was read by others."""
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
        """[layers, 2, page_tokens, kv heads, head_dim] of one page."""
        return self._pool[:, :, page * self._page_tokens : (page + 1) * self._page_tokens]

    def write(self, layer: int, slots: Tensor, keys: Tensor, values: Tensor) -> None:
        """Store [tokens, kv heads, head_dim] of one layer at `slots`."""
        self._pool[layer, 0].index_copy_(0, slots, keys.to(self._pool.dtype))
        self._pool[layer, 1].index_copy_(0, slots, values.to(self._pool.dtype))

    def attend(self, layer: int, queries: Tensor, layout: Layout) -> Tensor:
        """Causal attention of [tokens, heads, head_dim] to what `write` has stored; the same shape."""
        out = torch.empty_like(queries)
        for span in layout.spans:
            out[span.rows] = self._span(layer, queries[span.rows], span)
        for singles in layout.singles:
            out[singles.rows] = self._singles(layer, queries[singles.rows], singles)
        return out

    def _gather(self, layer: int, pages: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """Keys and values of `pages` [..., n]: each [..., n * page_tokens, kv heads, head_dim]."""
        keys, values = self._pool[layer].view(2, -1, self._page_tokens, *self._pool.shape[3:])
        shape = (*pages.shape[:-1], -1, *keys.shape[2:])
        flat = pages.flatten()
        return keys.index_select(0, flat).view(shape).to(dtype), values.index_select(0, flat).view(shape).to(dtype)

    def _span(self, layer: int, queries: Tensor, span: Span) -> Tensor:
        keys, values = self._gather(layer, span.pages, queries.dtype)
        query, key, value = (item.transpose(0, 1)[None] for item in (queries, keys, values))
        mixed = scaled_dot_product_attention(query, key, value, attn_mask=span.mask, enable_gqa=True)
        return mixed[0].transpose(0, 1)

    def _singles(self, layer: int, queries: Tensor, singles: Singles) -> Tensor:
        """The query heads that share a kv head stand where a sequence's queries would: no key is copied for them."""
        keys, values = self._gather(layer, singles.pages, queries.dtype)
        count, heads, width = queries.shape
        grouped = queries.view(count, keys.shape[2], -1, width)
        mixed = scaled_dot_product_attention(
            grouped, keys.transpose(1, 2), values.transpose(1, 2), attn_mask=singles.mask
        )
        return mixed.reshape(count, heads, width)
