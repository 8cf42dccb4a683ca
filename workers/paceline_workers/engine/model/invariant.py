"""The products and attention of `engine.batch_invariant`: a token gets the same bits whatever is computed with it.

A library's order of summation depends on the number of rows for a product, on the length for a softmax, and on both for
fused attention. So a product is computed in blocks of rows, only in sizes that give each row the same bits at any
position on this machine (`Blocks.of` finds them by trial); incomplete blocks are padded with zeros. Attention is
computed in float32 and by pages, each a product of one shape, and summed page by page in the order of the text: pages
that a row does not see add nothing, wherever a chunk begins or ends.
Known hole: sizes are compared on numbers that reveal every order of summation, but not on each layer's own.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from math import nan

import torch
from torch import Tensor
from torch.nn.functional import pad

from paceline_core.errors import InvalidInput

Product = Callable[[Tensor], Tensor]
"""[..., rows, in] to [..., rows, out]."""
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST = SIZES[-1]
_WIDTH = 16
"""Heads are padded to multiples of it: if rows of a page begin at odd addresses, sums depend on the address."""
UNABLE = "sums depend on the batch here in every way that is known; set fewer threads, or leave this out"


@dataclass(frozen=True, slots=True)
class Blocks:
    """The numbers of rows, ascending, for which a product may be computed."""

    sizes: tuple[int, ...]

    @classmethod
    def of(cls, product: Product, x: Tensor) -> "Blocks":
        """Of all sets of sizes that agree on `x` [..., MOST, in], the largest set; InvalidInput if there is none."""
        sets: list[tuple[int, ...]] = []
        for most in reversed(SIZES):
            if not any(most in sizes for sizes in sets):
                expected = _by(product, x, most)
                if torch.equal(_by(product, x.roll(1, -2), most), expected.roll(1, -2)):
                    sets.append(tuple(size for size in SIZES if size <= most and _agrees(product, x, size, expected)))
        if not sets:
            raise InvalidInput("engine.batch_invariant", UNABLE)
        return cls(max(sets, key=len))

    def __call__(self, product: Product, x: Tensor) -> Tensor:
        """The product of any number of rows."""
        if x.shape[-2] in self.sizes:
            return product(x)
        parts = [product(self._filled(part))[..., : part.shape[-2], :] for part in torch.split(x, self.sizes[-1], -2)]
        return parts[0] if len(parts) == 1 else torch.cat(parts, -2)

    def _filled(self, x: Tensor) -> Tensor:
        lacking = self.sizes[bisect_left(self.sizes, x.shape[-2])] - x.shape[-2]
        return pad(x, (0, 0, 0, lacking)) if lacking else x


def cancelling(rows: int, out: int, width: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor]:
    """Random [rows, width] and [out, width] whose products are 0 but for rounding, which shows the summation order."""
    chance, half = torch.Generator().manual_seed(1), width // 2
    order = torch.randperm(half, generator=chance)
    x, weight = (torch.randn(count, half, generator=chance).to(dtype) for count in (rows, out))
    halves = (x, -x[:, order]), (weight, weight[:, order])
    left, right = (pad(torch.cat(pair, 1), (0, width % 2)) for pair in halves)
    return left, right


def _by(product: Product, x: Tensor, size: int) -> Tensor:
    return torch.cat([product(part) for part in torch.split(x, size, -2)], -2)


def _agrees(product: Product, x: Tensor, size: int, expected: Tensor) -> bool:
    """Compares the first rows, some in the middle, and the last ones."""
    parts = [slice(start, start + size) for start in (0, MOST // 2, MOST - size)]
    return all(torch.equal(product(x[..., part, :]), expected[..., part, :]) for part in parts if part.stop <= MOST)


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention to pages of one size; `scores` and `mixes` are the blocks of its two products."""

    page_tokens: int
    scale: float
    scores: Blocks
    mixes: Blocks

    @classmethod
    def of(cls, page_tokens: int, head_dim: int) -> "Attention":
        """For heads of `head_dim` numbers."""
        width = head_dim + -head_dim % _WIDTH
        queries, keys = (x[None] for x in cancelling(MOST, page_tokens, width))
        weights, values = (x[None] for x in cancelling(MOST, width, page_tokens))
        scores = Blocks.of(_in_any_number(lambda x: torch.bmm(x, keys.expand(len(x), -1, -1).clone().mT)), queries)
        mixes = Blocks.of(_in_any_number(lambda x: torch.bmm(x, values.mT.repeat(len(x), 1, 1))), weights)
        return cls(page_tokens, head_dim**-0.5, scores, mixes)

    def __call__(self, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
        """Attention of queries [heads, rows, dim] to keys and values [heads, places, dim], float32; the queries' shape.

        mask [heads or 1, rows or 1, places]: 0 for what a row may see, else minus infinity.
        """
        own = queries.shape[-1]
        if own % _WIDTH:
            queries, keys, values = (pad(x, (0, -own % _WIDTH)) for x in (queries, keys, values))
        heads, rows, dim = queries.shape
        pages = keys.view(-1, self.page_tokens, dim)
        count = len(pages) // heads
        spread = queries[:, None].expand(-1, count, -1, -1).reshape(len(pages), rows, dim)
        scores = self.scores(lambda x: torch.bmm(x, pages.transpose(1, 2)), spread).view(heads, count, rows, -1)
        hidden = mask.view(len(mask), -1, count, self.page_tokens).transpose(1, 2)
        scores = scores.mul(self.scale).add_(hidden)
        weights = scores.sub_(scores.amax(-1, keepdim=True).amax(1, keepdim=True)).exp_()
        totals, values = weights.sum(-1), values.view(pages.shape)
        mixed = self.mixes(lambda x: torch.bmm(x, values), weights.flatten(0, 1)).view(heads, count, rows, dim)
        return _added(mixed).div_(_added(totals)[..., None])[..., :own]


def _in_any_number(product: Product) -> Product:
    """A product of x [1, rows, in] that is NaN where it depends on how many pages are multiplied at once."""
    threads = torch.get_num_threads()

    def checked(x: Tensor) -> Tensor:
        alone = product(x)
        beside = [product(x.repeat(pages, 1, 1)) for pages in {2, 3, threads, 2 * threads + 1}]
        same = all(torch.equal(found, alone.expand_as(found)) for found in beside)
        return alone if same else torch.full_like(alone, nan)

    return checked


def _added(parts: Tensor) -> Tensor:
    """The sum over pages [heads, pages, ...], one after another."""
    total, *others = parts.unbind(1)
    total = total.clone()
    for part in others:
        total += part
    return total


def silu(x: Tensor) -> Tensor:
    """Like torch's, which computes the last few numbers of each thread's part differently from the rest."""
    wide = x.float()
    return wide.div(wide.neg().exp_().add_(1.0)).to(x.dtype)
