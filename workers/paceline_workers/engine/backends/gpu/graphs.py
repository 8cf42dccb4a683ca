"""Decode steps recorded by size: whatever else a step is, it runs as it comes.

A step of single tokens takes the smallest bucket that holds it; what is left of the bucket stands for nobody. Larger
buckets are recorded first, so that the smaller ones find room in the memory that those have left.
"""

from collections.abc import Callable

from paceline_workers.engine.backends.gpu.device import Device
from paceline_workers.engine.backends.gpu.step_inputs import StepShape

_STRIDE = 32
"""Above so many, buckets are its multiples: products of a few rows more then cost hardly more."""


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
