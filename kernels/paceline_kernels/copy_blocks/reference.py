"""Moves pages by plain indexing."""

from torch import Tensor


def copy_blocks(pool: Tensor, pairs: Tensor) -> None:
    """pool [layers, pages, ...]: copies page `pairs[i, 0]` of every layer to page `pairs[i, 1]`."""
    pool[:, pairs[:, 1]] = pool[:, pairs[:, 0]]


def gather_pages(pool: Tensor, pages: Tensor, staging: Tensor) -> None:
    """staging [n, layers, ...]: copies page `pages[i]` of all layers to row i."""
    staging[:] = pool[:, pages].transpose(0, 1)


def scatter_pages(pool: Tensor, pages: Tensor, staging: Tensor) -> None:
    """The reverse."""
    pool[:, pages] = staging.transpose(0, 1)
