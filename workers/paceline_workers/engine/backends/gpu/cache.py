"""Pages of keys and values on a device, page-locked slots for them in host memory, and files behind those.

Pages that leave the device are gathered in the compute stream, so that they may be overwritten right after that, and
are copied to their slots in the stream `out`. Pages that come back are fetched in the stream `back` and put into place
after everything launched before; a step waits for such pages only if they are in its tables (`hold`). Independent
copies are made together (`independent_batches`). The streams are ordered as follows:

- A page is gathered before anything overwrites it: both happen in the compute stream, or, if the page comes back, in
  `back` after a mark in the compute stream. A page on its way back is gathered only when it has arrived.
- `_leaving` is refilled when `out` has emptied it, `_arriving` by the stream that empties it, `back`.
- `back` reads a slot when `out` has written it, and `out` writes one when `back` has read it.
- Bytes pass between a slot and its file on the host, which waits for the slot's writer and, to write it, its readers.

A slot holds a page's bytes in a file's layout: keys and values of all layers, then their scales if pages are narrow.
Known holes: more than _GROUP pages out at once make the compute stream wait for the first of them; the loop's thread
copies a file's bytes from their slot, at the speed of a plain copy.
"""

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

import torch
from torch import Tensor

from paceline_kernels.copy_blocks.independent_batches import independent_batches
from paceline_kernels.copy_blocks.launch import copy_blocks, gather_pages, scatter_pages
from paceline_kernels.paging import Pages
from paceline_planner.shapes import ModelShape
from paceline_workers.engine.backends.gpu.device import Device, DeviceEvent
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind, digest_of
from paceline_workers.engine.model.weights import TORCH_TYPES
from paceline_workers.engine.page_files import PageFiles

PAGE_LAYOUT = "layer, kv head, 2, token, head_dim; layer, kv head, 2, token (scales)"
"""The layout of a page's bytes in host memory and files."""
_GROUP = 8
"""How many pages pass between device and host together."""
_FILES = (CopyKind.SAVE, CopyKind.LOAD, CopyKind.ERASE)


def page_bytes(shape: ModelShape, page_tokens: int) -> int:
    """Bytes of one page in all layers, including scales."""
    scales = 2 * shape.layers * shape.kv_heads * 4 if shape.kv_dtype.size == 1 else 0
    return page_tokens * (shape.kv_bytes_per_token + scales)


class GpuCache:
    """The pool of all layers, zero at first so that no page ever holds a NaN; slots in host memory, and files."""

    def __init__(  # noqa: PLR0913 - the CPU cache's parameters, and a device
        self,
        shape: ModelShape,
        pages: int,
        page_tokens: int,
        host_pages: int = 0,
        files: PageFiles | None = None,
        *,
        device: Device,
    ) -> None:
        sizes = (shape.layers, pages, shape.kv_heads, 2, page_tokens)
        dtype, where = TORCH_TYPES[shape.kv_dtype], device.where
        self.data = torch.zeros((*sizes, shape.head_dim), dtype=dtype, device=where)
        self.scales = torch.zeros(sizes, device=where) if dtype.itemsize == 1 else None
        self.layers = tuple(
            Pages(self.data[layer], None if self.scales is None else self.scales[layer])
            for layer in range(shape.layers)
        )
        self._device = device
        self._files = files
        self._pages = pages
        size = page_bytes(shape, page_tokens)
        self._host = device.lock(torch.zeros((host_pages, size), dtype=torch.uint8))
        staging = (2, min(_GROUP, host_pages), size)
        self._leaving, self._arriving = torch.empty(staging, dtype=torch.uint8, device=where)
        self._left: DeviceEvent | None = None
        self._coming: deque[tuple[DeviceEvent, frozenset[int]]] = deque()
        self._written: dict[int, DeviceEvent] = {}
        self._read: dict[int, DeviceEvent] = {}

    @property
    def _pools(self) -> tuple[Tensor, ...]:
        return (self.data,) if self.scales is None else (self.data, self.scales)

    @property
    def page_tokens(self) -> int:
        return self.data.shape[4]

    def copy(self, copies: Sequence[Copy]) -> None:
        """Begin to move whole pages: the result is as if one was moved after another, after earlier steps."""
        for files, run in groupby(copies, lambda copy: copy.kind in _FILES):
            if files:
                for copy in run:
                    self._exchange(copy)
            else:
                self._move(list(run))

    def hold(self, tables: Collection[Sequence[int]]) -> None:
        """Make the compute stream wait for all pages in these tables that are on their way back."""
        while self._coming and self._coming[0][0].over():
            self._coming.popleft()
        for place in range(len(self._coming) - 1, -1, -1):
            mark, pages = self._coming[place]
            if not all(map(pages.isdisjoint, tables)):
                mark.hold()
                for _ in range(place + 1):
                    self._coming.popleft()
                return

    def _move(self, copies: Sequence[Copy]) -> None:
        """Copies between pages and slots; in `independent_batches`, slots are numbered after the pages."""
        pages = self._pages
        for wave in independent_batches([_numbered(copy, pages) for copy in copies]):
            self.hold(wave)
            across = [pair for pair in wave if max(pair) < pages]
            if across:
                pairs = self._on_device(across)
                for pool in self._pools:
                    copy_blocks(pool, pairs)
            for group in _groups([(page, slot - pages) for page, slot in wave if slot >= pages]):
                self._out(group)
            for group in _groups([(page, slot - pages) for slot, page in wave if slot >= pages]):
                self._back(group)

    def _out(self, pairs: Sequence[tuple[int, int]]) -> None:
        if self._left is not None:
            self._left.hold()
        pages = self._on_device([page for page, _ in pairs])
        for pool, staged in self._staged(self._leaving, len(pairs)):
            gather_pages(pool, pages, staged)
        gathered = self._device.mark()
        slots = [slot for _, slot in pairs]
        with self._device.beside("out"):
            gathered.hold()
            _hold(self._read.pop(slot, None) for slot in slots)
            for row, slot in enumerate(slots):
                self._host[slot].copy_(self._leaving[row], non_blocking=True)
            self._left = self._device.mark()
        self._written.update(dict.fromkeys(slots, self._left))

    def _back(self, pairs: Sequence[tuple[int, int]]) -> None:
        before = self._device.mark()
        slots = [slot for _, slot in pairs]
        with self._device.beside("back"):
            _hold(self._written.get(slot) for slot in slots)
            for row, slot in enumerate(slots):
                self._arriving[row].copy_(self._host[slot], non_blocking=True)
            read = self._device.mark()
            pages = self._on_device([page for page, _ in pairs])
            before.hold()  # until then the pages have another use; what is staged belongs to no request
            for pool, staged in self._staged(self._arriving, len(pairs)):
                scatter_pages(pool, pages, staged)
            mark = self._device.mark()
        self._read.update(dict.fromkeys(slots, read))
        self._coming.append((mark, frozenset(page for page, _ in pairs)))

    def _staged(self, rows: Tensor, count: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Each pool, with the part of `rows` for `count` of its pages."""
        begin = 0
        for pool in self._pools:
            end = begin + pool[:, 0].nbytes
            part = rows[:count, begin:end].view(pool.dtype)
            yield pool, part.view(count, pool.shape[0], *pool.shape[2:])
            begin = end

    def _on_device(self, numbers: Sequence[int] | Sequence[tuple[int, int]]) -> Tensor:
        """Numbers on the device, copied there in the current stream."""
        host = torch.tensor(numbers)
        pinned = self._device.pinned(host.shape, torch.int64).copy_(host)
        return pinned.to(self._device.where, non_blocking=True)

    def _exchange(self, copy: Copy) -> None:
        """Copy bytes between an idle host slot and a file's buffer."""
        if self._files is None:
            return
        match copy.kind:
            case CopyKind.SAVE:
                _wait(self._written.pop(copy.source, None))
                self._files.save(digest_of(copy.target), self._host[copy.source].numpy().tobytes())
            case CopyKind.LOAD:
                data = torch.frombuffer(self._files.take(digest_of(copy.source)), dtype=torch.uint8)
                _wait(self._written.pop(copy.target, None), self._read.pop(copy.target, None))
                self._host[copy.target].copy_(data)
            case CopyKind.ERASE:
                self._files.erase(digest_of(copy.source))


def _hold(marks: Iterable[DeviceEvent | None]) -> None:
    """Make the current stream wait for all of these, most of which are the same."""
    for mark in {id(mark): mark for mark in marks}.values():
        if mark is not None:
            mark.hold()


def _wait(*marks: DeviceEvent | None) -> None:
    for mark in marks:
        if mark is not None:
            mark.wait()


def _numbered(copy: Copy, pages: int) -> tuple[int, int]:
    out, back = copy.kind is CopyKind.OUT, copy.kind is CopyKind.IN
    return copy.source + back * pages, copy.target + out * pages


def _groups(pairs: Sequence[tuple[int, int]]) -> Iterator[Sequence[tuple[int, int]]]:
    for begin in range(0, len(pairs), _GROUP):
        yield pairs[begin : begin + _GROUP]
