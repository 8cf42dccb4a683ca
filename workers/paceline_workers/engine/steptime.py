"""The step-time model, fitted online: recursive least squares on the five terms of `StepTime`. Pure.

The unknowns are factors on the prior's coefficients, and each step is divided by its own time: so all terms have equal
weight and the fit minimises relative error. Forgetting lets it follow a machine that changes; factors never go below 0.
A step far from the prediction is ignored (a stall is not a property of the model), unless PERSISTENT such steps follow
each other: then the machine has changed. Known hole: terms that always move together share the error arbitrarily.
"""

from math import sqrt
from typing import Protocol

from paceline_core.wire import StepTime
from paceline_planner.step_clock import FittedClock
from paceline_planner.steptime import StepWork
from paceline_workers.messages import StepStats

FORGET = 0.998
NOISE = 0.05**2
GATE = 0.5
RECENT = 1 / 64
"""The weight of the newest step in `error`."""
PERSISTENT = 8
_NOMINAL = (1e-3, 1e-5, 1e-5, 1e-8, 1e-9)
_TERMS = len(_NOMINAL)


class StepTimeEstimate(Protocol):
    """An engine's own prediction of its steps. `model` and `error` are as in `StepTimeFit`."""

    @property
    def model(self) -> StepTime: ...

    @property
    def error(self) -> float: ...

    def seconds(self, work: StepWork) -> float: ...

    def observe(self, stats: StepStats) -> None: ...


class KnownStepTime:
    """A model that is known and does not learn: in a simulation the steps are the model's."""

    error = 0.0

    def __init__(self, model: StepTime) -> None:
        self.model = model
        self._clock = FittedClock(model)

    def seconds(self, work: StepWork) -> float:
        return self._clock.seconds(work)

    def observe(self, stats: StepStats) -> None:
        """Learn nothing."""


class StepTimeFit:
    """Starts at a prior and follows every observed step."""

    def __init__(self, prior: StepTime) -> None:
        coefficients = [prior.base, prior.prefill, prior.sequence, prior.kv, prior.context]
        self._scale = [value if value > 0 else nominal for value, nominal in zip(coefficients, _NOMINAL, strict=True)]
        self._factors = [1.0 if value > 0 else 0.0 for value in coefficients]
        self._spread = _identity()
        self._observations = 0
        self._rejected = 0
        self._variance = 0.0

    @property
    def error(self) -> float:
        """The fit's usual error as a share of a step's time: the root of the recent mean square; 0 at first."""
        return sqrt(self._variance)

    @property
    def model(self) -> StepTime:
        """The current fit; `observations` counts the steps behind it."""
        base, prefill, sequence, kv, context = (
            factor * scale for factor, scale in zip(self._factors, self._scale, strict=True)
        )
        return StepTime(
            base=base, prefill=prefill, sequence=sequence, kv=kv, context=context, observations=self._observations
        )

    def seconds(self, work: StepWork) -> float:
        return FittedClock(self.model).seconds(work)

    def observe(self, stats: StepStats) -> None:
        """Learn from one step, unless it is an outlier."""
        if stats.seconds <= 0:
            return
        raw = (1, stats.prefill_tokens, stats.decode_tokens, stats.kv_tokens, stats.prefill_tokens * stats.context)
        terms = [scale * value / stats.seconds for scale, value in zip(self._scale, raw, strict=True)]
        miss = 1.0 - sum(factor * term for factor, term in zip(self._factors, terms, strict=True))
        if self._outlier(miss):
            return
        self._observations += 1
        self._variance += (min(miss * miss, GATE * GATE) - self._variance) * RECENT
        spread = [sum(cell * term for cell, term in zip(row, terms, strict=True)) for row in self._spread]
        total = NOISE + sum(term * value for term, value in zip(terms, spread, strict=True))
        gain = [value / total for value in spread]
        self._factors = [max(factor + step * miss, 0.0) for factor, step in zip(self._factors, gain, strict=True)]
        self._spread = [
            [cell - step * value for cell, value in zip(row, spread, strict=True)]
            for row, step in zip(self._spread, gain, strict=True)
        ]
        # Forget: widen the spread, but never beyond its initial value, lest unobserved terms become arbitrary.
        for place, row in enumerate(self._spread):
            if row[place] / FORGET <= 1.0:
                row[place] /= FORGET

    def _outlier(self, miss: float) -> bool:
        """False until the fit has seen enough steps to know its usual error."""
        if abs(miss) <= GATE or self._observations < PERSISTENT:
            self._rejected = 0
            return False
        self._rejected += 1
        if self._rejected < PERSISTENT:
            return True
        self._rejected = 0
        self._spread = _identity()
        return False


def _identity() -> list[list[float]]:
    return [[float(row == column) for column in range(_TERMS)] for row in range(_TERMS)]
