"""Pages moved by plain indexing."""

from torch import Tensor


def copy_blocks(pool: Tensor, pairs: Tensor) -> None:
    """pool [layers, pages, ...]: page `pairs[i, 1]` of every layer becomes what page `pairs[i, 0]` was."""
    pool[:, pairs[:, 1]] = pool[:, pairs[:, 0]]


def gather_pages(pool: Tensor, pages: Tensor, staging: Tensor) -> None:
    """staging [n, layers, ...]: row i becomes page `pages[i]` of all layers."""
    staging[:] = pool[:, pages].transpose(0, 1)


def scatter_pages(pool: Tensor, pages: Tensor, staging: Tensor) -> None:
    """The way back."""
    pool[:, pages] = staging.transpose(0, 1)
