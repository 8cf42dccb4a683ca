"""The seconds of one engine step, behind one method: predicted from hardware, fitted to a worker, or measured.

An emulated backend waits for these seconds, a simulation adds them to its clock. Three forms:

    RooflineClock   the planner's roofline of a model on an accelerator: no machine is needed
    FittedClock     the linear model that a worker has fitted online and reports (`StepTime`)
    TableClock      steps measured on a machine, interpolated

A worker's own `StepTimeFit` is a fourth, which changes as it learns.
Known hole: a table holds pure prefills and pure decodes, as they are measured. A mixed step takes the sum of both, less
the shortest measured step, which each of them includes; their overlap is not modelled.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from paceline_core.errors import InvalidInput
from paceline_core.wire import StepTime
from paceline_planner.hardware import Accelerator
from paceline_planner.shapes import ModelShape
from paceline_planner.splits import ONE_DEVICE, DeviceSplit
from paceline_planner.steptime import StepWork, step_seconds


class StepClock(Protocol):
    def seconds(self, work: StepWork) -> float:
        """Seconds of one step that computes `work`; a step without work takes none."""
        ...


@dataclass(frozen=True, slots=True)
class RooflineClock:
    """A model on the devices of one replica. `seconds` raises InvalidInput if the model cannot be split that way."""

    shape: ModelShape
    accelerator: Accelerator
    split: DeviceSplit = ONE_DEVICE

    def seconds(self, work: StepWork) -> float:
        return step_seconds(self.shape, self.accelerator, work, self.split)


@dataclass(frozen=True, slots=True)
class FittedClock:
    """A linear model, as fitted by a worker or as the planner's prior."""

    model: StepTime

    def seconds(self, work: StepWork) -> float:
        if not work.prefill_tokens and not work.sequences:
            return 0.0
        return self.model.seconds(
            prefill_tokens=work.prefill_tokens,
            sequences=work.sequences,
            kv_tokens=work.kv_tokens,
            context=work.context,
        )


@dataclass(frozen=True, slots=True)
class Grid:
    """Seconds at every pair of two measured axes, linear in between and beyond the last point; flat below the first."""

    rows: tuple[float, ...]
    columns: tuple[float, ...]
    values: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, points: Mapping[tuple[float, float], float], field: str) -> "Grid":
        """Raises InvalidInput naming `field` unless there is one positive value for every pair of axis points."""
        rows, columns = (tuple(sorted(set(axis))) for axis in zip(*points, strict=True)) if points else ((), ())
        missing = [(row, column) for row in rows for column in columns if (row, column) not in points]
        if not points or missing:
            lacks = f"lacks the step {missing[0]}" if missing else "is empty"
            raise InvalidInput(field, f"{lacks}; measure every pair of the two sizes")
        for point, seconds in points.items():
            if not seconds > 0:
                raise InvalidInput(field, f"has {seconds} s for the step {point}; a step takes longer than 0 s")
        return cls(rows, columns, tuple(tuple(points[row, column] for column in columns) for row in rows))

    @property
    def shortest(self) -> float:
        return min(map(min, self.values))

    def at(self, row: float, column: float) -> float:
        return _linear(self.rows, [_linear(self.columns, values, column) for values in self.values], row)


@dataclass(frozen=True, slots=True)
class TableClock:
    """Measured steps: `prefill` by tokens and their mean context, `decode` by sequences and KV tokens of each."""

    prefill: Grid
    decode: Grid

    @classmethod
    def of(cls, steps: Iterable[tuple[StepWork, float]]) -> "TableClock":
        """From measured steps, each a pure prefill or a pure decode. Raises InvalidInput for any other, or a gap."""
        prefill: dict[tuple[float, float], float] = {}
        decode: dict[tuple[float, float], float] = {}
        for work, seconds in steps:
            if bool(work.prefill_tokens) == bool(work.sequences):
                raise InvalidInput("steps", f"{work} is neither a pure prefill nor a pure decode; measure them apart")
            if work.prefill_tokens:
                prefill[work.prefill_tokens, work.context] = seconds
            else:
                decode[work.sequences, work.kv_tokens / work.sequences] = seconds
        return cls(Grid.of(prefill, "steps.prefill"), Grid.of(decode, "steps.decode"))

    def seconds(self, work: StepWork) -> float:
        prefill = self.prefill.at(work.prefill_tokens, work.context) if work.prefill_tokens else 0.0
        decode = self.decode.at(work.sequences, work.kv_tokens / work.sequences) if work.sequences else 0.0
        if not prefill or not decode:
            return prefill + decode
        return max(prefill + decode - min(self.prefill.shortest, self.decode.shortest), prefill, decode)


def _linear(axis: Sequence[float], values: Sequence[float], at: float) -> float:
    if len(axis) == 1 or at <= axis[0]:
        return values[0]
    place = min(bisect_right(axis, at), len(axis) - 1)
    share = (at - axis[place - 1]) / (axis[place] - axis[place - 1])
    return values[place - 1] + share * (values[place] - values[place - 1])
