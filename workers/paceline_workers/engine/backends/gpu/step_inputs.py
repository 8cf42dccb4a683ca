"""The inputs of a step, in one piece of memory on the device, and two on the host from which it is copied at once.

A step's sizes (`StepShape`) say where each of its fields lies, so those of one bucket always lie at the same addresses
and a recorded graph finds them there. The host fills one staging buffer while the other one is on its way; each is
filled anew only behind its last copy. The runner chooses which of the two, since it knows what is in flight.

Rows that pad a bucket have no place in any page (slot -1), see nothing (length 0) and draw nothing (sample slot -1).
A block table is written row by row where it differs from what the staging buffer holds already, since most requests go
on in the row and the pages that they had two steps before.

Steps of single tokens are recorded as graphs by size; any other step runs as it comes. One takes the smallest bucket
that holds it. Larger buckets are recorded first, so that the smaller ones find room in the memory that those have left.
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
"""Above so many, buckets are its multiples: products of a few rows more then cost hardly more."""


@dataclass(frozen=True, slots=True)
class StepInputs(Generic[Array]):
    """tokens, sources, positions, slots [rows] int64: `sources` names the row that draws a token in the step before.

    Of the rows whose next token is wanted, [drawn]: `drawn` int64 which ones, `sample_slots` int32 their places in the
    sampler's state, `counts` int32 how many tokens their requests have by then. Of the sequences, singles first, then
    spans from `StepShape.first` on: `lengths`, `dropped` [places] int32 and `table` [places, pages] int32. starts
    [spans + 1] int32 and tiles [tiles, 2] int32: of chunks of several tokens.
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
    """Sizes of a step: one row a token, `singles` sequences with one row and `spans` with several.

    `pages` of a row of the table are a multiple of 16, and spans begin at a multiple of 4: all that a kernel is given
    then begins at a multiple of 16 bytes, and is not compiled anew for the want of that.
    """

    rows: int
    singles: int
    spans: int
    drawn: int
    tiles: int
    pages: int

    @classmethod
    def bucket(cls, size: int, pages: int) -> "StepShape":
        """So many single tokens, each of which draws."""
        return cls.of(size, size, 0, size, 0, pages)

    @classmethod
    def of(  # noqa: PLR0913, PLR0917 - sizes
        cls, rows: int, singles: int, spans: int, drawn: int, tiles: int, pages: int
    ) -> "StepShape":
        """With room for so many `pages` at least."""
        return cls(rows, singles, spans, drawn, tiles, _multiple(pages, 16))

    @property
    def first(self) -> int:
        """Where the spans begin among the sequences."""
        return _multiple(self.singles, 4)

    @property
    def places(self) -> int:
        return self.first + self.spans

    @cached_property
    def layout(self) -> dict[str, tuple[torch.dtype, tuple[int, ...], int]]:
        """By field: type, shape, and the byte where it begins."""
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
        """The fields in a piece of memory that is large enough."""
        return StepInputs(**{name: _view(memory, *place) for name, place in self.layout.items()})


class Buffers:
    """Room for steps up to the size of `most`."""

    def __init__(self, device: Device, most: StepShape) -> None:
        self._memory = torch.zeros(most.size, dtype=torch.uint8, device=device.where)
        self._halves = [_Half(device.pinned((most.size,), torch.uint8)) for _ in range(2)]
        self._device = device

    def stage(self, form: StepShape, turn: int) -> "Staged":
        """The staging buffer `turn`, 0 or 1, to fill; behind its last copy."""
        half = self._halves[turn]
        if half.sent is not None:
            half.sent.wait()
        if half.form != form:
            half.fields = _arrays(form.within(half.memory))
            half.form, half.tables = form, [[] for _ in range(form.places)]
        assert half.fields is not None
        return Staged(form, half.fields, half.tables, turn)

    def send(self, staged: "Staged") -> None:
        """One copy to the device, behind all that the compute stream has been given."""
        half, size = self._halves[staged.turn], staged.form.size
        self._memory[:size].copy_(half.memory[:size], non_blocking=True)
        half.sent = self._device.mark()

    def inputs(self, form: StepShape) -> StepInputs[Tensor]:
        """What a step of this form finds on the device."""
        return form.within(self._memory)


@dataclass(slots=True)
class _Half:
    """One staging buffer: what form it was filled in last, which pages each row of its table names, its last copy."""

    memory: Tensor
    form: StepShape | None = None
    fields: StepInputs[NDArray[Any]] | None = None
    tables: list[list[int]] = field(default_factory=list)
    sent: DeviceEvent | None = None


@dataclass(frozen=True, slots=True)
class Staged:
    """A step on the host: to be filled, then sent."""

    form: StepShape
    fields: StepInputs[NDArray[Any]]
    tables: list[list[int]]
    turn: int

    def table(self, tables: Sequence[list[int]], first: int = 0) -> None:
        """The pages of sequences from the `first` place on; what lies behind them in a row is never read."""
        known = self.tables
        for row, pages in enumerate(tables, first):
            if known[row] != pages:
                self.fields.table[row, : len(pages)] = pages
                known[row] = pages.copy()

    def pad(self, rows: int) -> None:
        """Rows behind the first `rows` of a bucket are padding."""
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
        """The smallest bucket that holds so many."""
        return next(form for form in self.forms if form.singles >= singles)

    def record(self, form: StepShape, compute: Callable[[], None]) -> None:
        """`compute` is what a step of this form does; it has been run."""
        self._recorded[form] = self._device.record(compute)

    def run(self, form: StepShape, compute: Callable[[], None]) -> None:
        """As it was recorded, else as it is."""
        self._recorded.get(form, compute)()
