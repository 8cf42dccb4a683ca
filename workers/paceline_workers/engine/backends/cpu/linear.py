"""Matrix products of the linear layers: plain, or oneDNN's with weights packed once, depending on the number of rows.

torch's plain product packs a weight again in every call, which for 4 to 16 rows takes longer than the product itself;
for the first few rows it needs no packing and is the fastest (`benchmarks/products.py` has the figures). So "packed" is
the better single copy for anything batched, and "both" costs a second copy and is never slower. An embedding that is
also the output matrix must be kept plain, so only "both" packs it too. Without oneDNN all is plain, and so is bf16 on a
processor without AVX-512, where oneDNN cannot pack it.
The order of summation differs, so results differ within rounding; with `batch_invariant` a row's result does not depend
on the number of rows (`invariant`).
"""

from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import linear

from paceline_workers.engine.model.invariant import MOST, Blocks, cancelling

Kind = Literal["plain", "packed", "both"]

PLAIN_ROWS = {torch.float32: 3, torch.bfloat16: 1}
"""Up to this many rows a plain product is faster than a packed one."""
_ROWS_HINT = 8


@dataclass(frozen=True, slots=True)
class Linear:
    """weight [out, in] plain, packed or both; bias [out] or None. `blocks`: row counts for invariant products."""

    weight: Tensor | None
    packed: Tensor | None = None
    bias: Tensor | None = None
    blocks: Blocks | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return self._product(x) if self.blocks is None else self.blocks(self._product, x)

    def _product(self, x: Tensor) -> Tensor:
        if self.weight is None or (self.packed is not None and len(x) > PLAIN_ROWS[x.dtype]):
            product: Tensor = torch.ops.mkldnn._linear_pointwise(x, self.packed, self.bias, "none", [], "")  # noqa: SLF001 - torch has no public name for it
            return product
        return linear(x, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class LinearFactory:
    """How weights are kept where they can be packed, and whether products are batch invariant; `_blocks`: by shape."""

    kind: Kind
    batch_invariant: bool = False
    _blocks: dict[tuple[object, ...], Blocks] = field(default_factory=dict)

    def linear(self, weight: Tensor, bias: Tensor | None = None, *, shared: bool = False) -> Linear:
        """A layer with this weight; `shared`: another layer needs it plain anyway."""
        made = self._linear(weight, bias, shared=shared)
        if not self.batch_invariant:
            return made
        like = (*weight.shape, weight.dtype, bias is None, shared)
        if like not in self._blocks:
            x, other = cancelling(MOST, weight.shape[0], weight.shape[1], weight.dtype)
            product = self._linear(other, None if bias is None else torch.zeros_like(bias), shared=shared)
            self._blocks[like] = Blocks.of(product, x)
        return replace(made, blocks=self._blocks[like])

    def _linear(self, weight: Tensor, bias: Tensor | None, *, shared: bool) -> Linear:
        if self.kind == "plain" or (shared and self.kind == "packed") or not packable(weight.dtype):
            return Linear(weight, None, bias)
        return Linear(weight if self.kind == "both" else None, _pack(weight), bias)


def packable(dtype: torch.dtype) -> bool:
    """Whether weights of this type can be packed: with oneDNN, by an x86 processor with AVX2, for bf16 with AVX-512."""
    built = bool(torch.backends.mkldnn.is_available())  # type: ignore[no-untyped-call]
    able = built and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
    return able and (dtype is not torch.bfloat16 or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()))  # noqa: SLF001 - as above


def _pack(weight: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, _ROWS_HINT)  # noqa: SLF001 - as above
    return packed
