"""The checks of tensors that every launch makes before it calls a kernel (shape, contiguity), and grid arithmetic.

The arithmetic is in plain Python: Triton's own functions wrap and unwrap each number when the host calls them.
"""

import torch
from torch import Tensor

from paceline_kernels.paging import PAGE_TOKENS, Pages

NARROW = (torch.int8, torch.float8_e4m3fn)
"""Types of pages that need scales."""


def check_tensor(name: str, tensor: Tensor, *shape: int) -> None:
    """Raise ValueError unless it is contiguous and has this shape; -1 allows any size."""
    if tensor.shape != shape and not _fits(tensor.shape, shape):
        raise ValueError(f"{name} has the shape {list(tensor.shape)}; {list(shape)} is needed")
    if not tensor.is_contiguous():
        raise ValueError(f"{name} has gaps between its rows; pass a contiguous tensor")


def expect_pages(pages: Pages) -> None:
    """Raise ValueError unless kernels can read and write these pages."""
    check_tensor("pages.data", pages.data, -1, -1, 2, -1, -1)
    if pages.page_tokens not in PAGE_TOKENS:
        raise ValueError(f"pages.data has pages of {pages.page_tokens} tokens; {PAGE_TOKENS} are taken")
    if (pages.data.dtype in NARROW) != (pages.scales is not None):
        raise ValueError(f"pages.scales go with pages of {NARROW} and no others; these are {pages.data.dtype}")
    if pages.scales is not None:
        check_tensor("pages.scales", pages.scales, *pages.data.shape[:4])


def _fits(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(want in (-1, size) for size, want in zip(shape, wanted, strict=True))


def ceil_div(size: int, part: int) -> int:
    """The number of parts of size `part` that hold `size`."""
    return -(-size // part)


def power_of_2(size: int) -> int:
    """The smallest power of two that is at least `size`."""
    return 1 << max(size - 1, 0).bit_length()
