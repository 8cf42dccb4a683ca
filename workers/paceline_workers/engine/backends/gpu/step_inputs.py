"""The inputs of a step in one block of device memory, with two staging buffers on the host; and the recorded graphs.

A step's sizes (`StepShape`) determine the offset of each field, so steps of one bucket always have the same addresses,
where a recorded graph finds them. The host fills one staging buffer while the other one is being copied; a buffer is
refilled only after its last copy. The runner chooses which of the two, because it knows what is in flight.

Rows that pad a bucket have no place in any page (slot -1), see nothing (length 0) and draw nothing (sample slot -1).
Only rows of a block table that differ from the staging buffer's content are written, because most requests keep the row
and the pages that they had two steps before.

Steps of single tokens are recorded as graphs by size; other steps run unrecorded. A step uses the smallest bucket that
holds it. Larger buckets are recorded first, so that smaller ones fit into the memory that those have released.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from math import prod
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from paceline_workers.engine.backends.gpu.device import Device, DeviceEvent

Array = TypeVar("Array")
NO_ROW = -1
"""The slot, the source and the sample slot of rows that have none."""
_ALIGNED = 128
_STRIDE = 32
"""Above this size, buckets are its multiples: products of a few more rows hardly cost more."""


@dataclass(frozen=True, slots=True)
class StepInputs(Generic[Array]):
    """tokens, sources, positions, slots [rows] int64: `sources` names the row that draws a token in the step before.

    For the rows whose next token is needed, [drawn]: `drawn` int64 which ones, `sample_slots` int32 their slots in the
    sampler's state, `counts` int32 how many tokens their requests have by then. For the sequences, singles first, then
    spans from `StepShape.first` on: `lengths`, `dropped` [places] int32 and `table` [places, pages] int32. For chunks
    of several tokens: starts [spans + 1] int32 and tiles [tiles, 2] int32.
    """

    tokens: Array
    sources: Array
    positions: Array
    slots: Array
    drawn: Array
    sample_slots: Array
    counts: Array
    lengths: Array
    dropped: Array
    starts: Array
    tiles: Array
    table: Array


@dataclass(frozen=True)
class StepShape:
    """Sizes of a step: one row for each token, `singles` sequences with one row and `spans` with several.

    `pages` of a row of the table are a multiple of 16, and spans begin at a multiple of 4: so every kernel argument is
    aligned to 16 bytes, and no kernel is compiled again for another alignment.
    """

    rows: int
    singles: int
    spans: int
    drawn: int
    tiles: int
    pages: int

    @classmethod
    def bucket(cls, size: int, pages: int) -> "StepShape":
        """A number of single tokens, each of which draws."""
        return cls.of(size, size, 0, size, 0, pages)

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - sizes
        cls, rows: int, singles: int, spans: int, drawn: int, tiles: int, pages: int
    ) -> "StepShape":
        """With room for at least this many `pages`."""
        return cls(rows, singles, spans, drawn, tiles, _multiple(pages, 16))

    @property
    def first(self) -> int:
        """The index of the first span among the sequences."""
        return _multiple(self.singles, 4)

    @property
    def places(self) -> int:
        return self.first + self.spans

    @cached_property
    def layout(self) -> dict[str, tuple[torch.dtype, tuple[int, ...], int]]:
        """By field: type, shape, and byte offset."""
        rows, drawn, places = (self.rows,), (self.drawn,), (self.places,)
        wide = {"tokens": rows, "sources": rows, "positions": rows, "slots": rows, "drawn": drawn}
        narrow: dict[str, tuple[int, ...]] = {
            "sample_slots": drawn,
            "counts": drawn,
            "lengths": places,
            "dropped": places,
            "starts": (self.spans + 1,),
            "tiles": (self.tiles, 2),
            "table": (self.places, self.pages),
        }
        found, begin = {}, 0
        for dtype, shapes in ((torch.int64, wide), (torch.int32, narrow)):
            for name, shape in shapes.items():
                found[name] = (dtype, shape, begin)
                begin += _multiple(prod(shape) * dtype.itemsize, _ALIGNED)
        return found

    @cached_property
    def size(self) -> int:
        dtype, shape, begin = self.layout["table"]
        return begin + prod(shape) * dtype.itemsize

    def within(self, memory: Tensor) -> StepInputs[Tensor]:
        """The fields in a block of memory that is large enough."""
        return StepInputs(**{name: _view(memory, *place) for name, place in self.layout.items()})


class Buffers:
    """Memory for steps up to the size of `most`."""

    def __init__(self, device: Device, most: StepShape) -> None:
        self._memory = torch.zeros(most.size, dtype=torch.uint8, device=device.where)
        self._halves = [_Half(device.pinned((most.size,), torch.uint8)) for _ in range(2)]
        self._device = device

    def stage(self, form: StepShape, turn: int) -> "Staged":
        """The staging buffer `turn`, 0 or 1, to fill; waits for its last copy."""
        half = self._halves[turn]
        if half.sent is not None:
            half.sent.wait()
        if half.form != form:
            half.fields = _arrays(form.within(half.memory))
            half.form, half.tables = form, [[] for _ in range(form.places)]
        assert half.fields is not None
        return Staged(form, half.fields, half.tables, turn)

    def send(self, staged: "Staged") -> None:
        """One copy to the device, after everything given to the compute stream."""
        half, size = self._halves[staged.turn], staged.form.size
        self._memory[:size].copy_(half.memory[:size], non_blocking=True)
        half.sent = self._device.mark()

    def inputs(self, form: StepShape) -> StepInputs[Tensor]:
        """The inputs of a step of this form on the device."""
        return form.within(self._memory)


@dataclass(slots=True)
class _Half:
    """One staging buffer: the form that it was last filled for, the pages in each row of its table, its last copy."""

    memory: Tensor
    form: StepShape | None = None
    fields: StepInputs[NDArray[Any]] | None = None
    tables: list[list[int]] = field(default_factory=list)
    sent: DeviceEvent | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """A step on the host: fill it, then send it."""

    form: StepShape
    fields: StepInputs[NDArray[Any]]
    tables: list[list[int]]
    turn: int

    def table(self, tables: Sequence[list[int]], first: int = 0) -> None:
        """Write the pages of sequences from index `first` on; the rest of a row is never read."""
        known = self.tables
        for row, pages in enumerate(tables, first):
            if known[row] != pages:
                self.fields.table[row, : len(pages)] = pages
                known[row] = pages.copy()

    def pad(self, rows: int) -> None:
        """Make the rows after the first `rows` of a bucket padding."""
        fields = self.fields
        fields.drawn[:] = np.arange(len(fields.drawn))
        for empty in (fields.tokens, fields.positions, fields.counts, fields.lengths, fields.dropped):
            empty[rows:] = 0
        for none in (fields.slots, fields.sources, fields.sample_slots):
            none[rows:] = NO_ROW


def _multiple(size: int, of: int) -> int:
    return -(-size // of) * of


def _view(memory: Tensor, dtype: torch.dtype, shape: tuple[int, ...], begin: int) -> Tensor:
    return memory[begin : begin + prod(shape) * dtype.itemsize].view(dtype).view(shape)


def _arrays(tensors: StepInputs[Tensor]) -> StepInputs[NDArray[Any]]:
    return StepInputs(**{entry.name: getattr(tensors, entry.name).numpy() for entry in fields(StepInputs)})


def buckets(most: int) -> tuple[int, ...]:
    """1, 2, 4 and so on up to _STRIDE, then its multiples, the last one being `most`."""
    powers = [1 << power for power in range(_STRIDE.bit_length())]
    sizes = [*powers, *range(2 * _STRIDE, most, _STRIDE)]
    return (*(size for size in sizes if size < most), most)


class Graphs:
    """The recorded steps of one runner, for at most `most` single tokens with `pages` pages each."""

    def __init__(self, device: Device, most: int, pages: int) -> None:
        self.forms = tuple(StepShape.bucket(size, pages) for size in buckets(most))
        self._device = device
        self._recorded: dict[StepShape, Callable[[], None]] = {}

    def form(self, singles: int) -> StepShape:
        """The smallest bucket that holds this many."""
        return next(form for form in self.forms if form.singles >= singles)

    def record(self, form: StepShape, compute: Callable[[], None]) -> None:
        """Record `compute`, the work of a step of this form, which must have run before."""
        self._recorded[form] = self._device.record(compute)

    def run(self, form: StepShape, compute: Callable[[], None]) -> None:
        """Run the recorded graph, else `compute` itself."""
        self._recorded.get(form, compute)()
