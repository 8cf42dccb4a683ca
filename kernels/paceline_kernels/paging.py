"""The data types of all kernels: keys and values in pages, the pages of each sequence, and what its tokens see.

A page of one layer holds `page_tokens` tokens, head by head, a head's keys and values side by side, so that what one
program reads of a page is contiguous. Narrow pages (fp8 e4m3, int8) hold numbers to be multiplied by one scale for each
token and head.

A block table is compact, as the engine keeps it: the pages of the first tokens that stay visible, the `head`, then
those from the first page on that was not dropped. `dropped` is the number of missing pages between them, so page number
`n` of the text is entry `n` in the head and entry `n - dropped` after it.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:  # these types are also used where Triton is not installed
    from triton.tools.tensor_descriptor import TensorDescriptor

PAGE_TOKENS = (16, 32, 64, 128)
"""The page sizes that the kernels support."""


@dataclass(frozen=True, slots=True)
class Pages:
    """One layer's pool: `data` [pages, kv heads, 2 (key, value), page_tokens, head_dim], the layer's stride is free.

    `scales` [pages, kv heads, 2, page_tokens] float32 for narrow pages, else None. `descriptors`: the copy engine's
    descriptors of the pool by tokens of a tile, made once instead of for each launch.
    """

    data: Tensor
    scales: Tensor | None = None
    descriptors: "dict[int, TensorDescriptor]" = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.data.shape[1]

    @property
    def page_tokens(self) -> int:
        """Tokens in a page."""
        return self.data.shape[3]

    @property
    def head_dim(self) -> int:
        """Numbers in a head's key."""
        return self.data.shape[4]


@dataclass(frozen=True, slots=True)
class Sequences:
    """`table` [sequences, most pages] int32, `lengths` [sequences] int32: tokens so far, including those of this step.

    `dropped` [sequences] int32: pages missing after the head. Table entries beyond a sequence's pages, or for pages no
    longer visible, are never read. A length of 0 is an empty place.
    """

    table: Tensor
    lengths: Tensor
    dropped: Tensor

    def __len__(self) -> int:
        return len(self.lengths)


@dataclass(frozen=True, slots=True)
class AttentionMask:
    """How a query scores keys, and which keys it sees.

    scores = softcap(scale * q.k), softcap(x) = cap * tanh(x / cap) if `cap` > 0; `scale` is above 0. `window`: visible
    tokens, including the current one, None: all before it. `first`: tokens at the beginning that stay visible outside
    the window.
    """

    scale: float
    window: int | None = None
    first: int = 0
    cap: float = 0.0

    def head(self, page_tokens: int) -> int:
        """Pages that hold the first tokens; 0 without a window."""
        return 0 if self.window is None else -(-self.first // page_tokens)
