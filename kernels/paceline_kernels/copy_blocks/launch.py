"""Calls the kernel, in three ways."""

from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_kernels.checks import ceil_div, check_tensor, power_of_2
from paceline_kernels.copy_blocks.kernel import move_kernel


@dataclass(frozen=True, slots=True)
class Launch:
    """The words of four bytes that a program moves, and its warps."""

    block: int
    warps: int


def launch_for(words: int) -> Launch:
    """For pages with this many words in a layer. First guess, until `make gpu` has chosen: eight loads of 16 bytes in
    flight for each thread, fewer for small pages."""
    return Launch(block=min(4096, power_of_2(words)), warps=4)


def copy_blocks(pool: Tensor, pairs: Tensor, *, launch: Launch | None = None) -> None:
    """pool [layers, pages, ...]: copies page `pairs[i, 0]` of every layer to page `pairs[i, 1]`.

    pairs [n, 2] int64 on the device, all at once: none may write what another reads or writes (`independent_batches`).
    """
    check_tensor("pairs", pairs, -1, 2)
    words = _words("pool", pool)
    _move(words, words, pairs[:, 0], pairs[:, 1], launch)


def gather_pages(pool: Tensor, pages: Tensor, staging: Tensor, *, launch: Launch | None = None) -> None:
    """staging [n, layers, ...]: copies page `pages[i]` of all layers to row i.

    pages [n] int64 on the device. The stride of staging's rows is free: data and scales may share rows of bytes.
    """
    words, rows = _staged(pool, pages, staging)
    _move(words, rows, pages, None, launch)


def scatter_pages(pool: Tensor, pages: Tensor, staging: Tensor, *, launch: Launch | None = None) -> None:
    """Copies row i of staging [n, layers, ...] to page `pages[i]` of all layers; no page may occur twice."""
    words, rows = _staged(pool, pages, staging)
    _move(rows, words, None, pages, launch)


def _move(source: Tensor, target: Tensor, origins: Tensor | None, places: Tensor | None, launch: Launch | None) -> None:
    """Both [layers, places, words]; an index or none on each side."""
    index = places if origins is None else origins
    assert index is not None
    if index.dtype != torch.int64:
        raise ValueError(f"pages and pairs are {index.dtype}; they have to be int64")
    layers, words = source.shape[0], source.shape[2]
    if not len(index):
        return
    launch = launch or launch_for(words)
    move_kernel[(len(index) * layers * ceil_div(words, launch.block),)](
        source,
        target,
        index if origins is None else origins,
        index if places is None else places,
        *source.stride()[:2],
        *target.stride()[:2],
        STRIDE=index.stride(0),
        INDEXED_SOURCE=origins is not None,
        INDEXED_TARGET=places is not None,
        LAYERS=layers,
        WORDS=words,
        BLOCK=launch.block,
        num_warps=launch.warps,
    )


def _words(name: str, tensor: Tensor) -> Tensor:
    """The same bytes as words of four, [..., ..., words]; the first stride is free."""
    if tensor.dim() < 3 or not tensor[:1].is_contiguous():
        raise ValueError(f"{name} needs three dimensions or more, and no gaps behind the first")
    words = tensor.flatten(2)
    if (words.shape[2] * tensor.itemsize | words.stride(0) * tensor.itemsize | words.data_ptr()) % 16:
        raise ValueError(f"{name} has pages that do not begin at multiples of 16 bytes")
    return words.view(torch.int32)


def _staged(pool: Tensor, pages: Tensor, staging: Tensor) -> tuple[Tensor, Tensor]:
    check_tensor("pages", pages, -1)
    shape = (len(pages), pool.shape[0], *pool.shape[2:])
    if staging.shape != shape or staging.dtype != pool.dtype:
        raise ValueError(f"staging is {staging.dtype} {list(staging.shape)}; {pool.dtype} {list(shape)} is needed")
    return _words("pool", pool), _words("staging", staging).transpose(0, 1)
