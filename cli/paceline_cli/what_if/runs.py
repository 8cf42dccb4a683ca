"""The runs of a question, in two processes: both variants in the fluid model, then in the exact simulator.

A run stops when its time is over, so both are compared over the time that both have reached. The processes ignore
SIGINT, which a terminal sends to all; the parent ends them.
"""

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import active_children, get_context

from paceline_autoscaler.policies.fluid import HOUR_S
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput
from paceline_core.units import counted
from paceline_simulator.what_if import ServiceVariant, WhatIf
from paceline_simulator.what_if_outcome import (
    EXACT_WARM_UP_S,
    LEAST_REQUESTS,
    ExactRun,
    FluidSpan,
    WhatIfOutcome,
)

FLUID_SHARE = 0.7
"""Of the time limit, for the fluid model at most."""
LEAST_S = 60.0
"""A shorter exact part says nothing."""
_RETURN_S = 4.0
"""Of the time limit, to send the results back and to write them."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Outcomes of both variants by one way to simulate, from `start_s` to `end_s` of the span, and how long it took."""

    start_s: float
    end_s: float
    took_s: float
    as_is: WhatIfOutcome
    would_be: WhatIfOutcome


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """`exact`: or why there is none."""

    fluid: Compared
    exact: Compared | str


def answer(question: WhatIf, limit_s: float) -> WhatIfAnswer:
    """Run both variants within the limit. Raises InvalidInput if it is too short for an hour of the fluid model."""
    clock, variants = SystemClock(), (question.as_is, question.would_be)
    began = clock.monotonic()
    with _processes() as pool:
        spans = list(pool.map(_fluid, repeat(question), variants, repeat(FLUID_SHARE * limit_s)))
        fluid_s = clock.monotonic() - began
        fluid = _compared_spans(question, spans, limit_s, fluid_s)
        start_s = question.worst_s(spans[1])
        replicas = [_ordered(span, start_s) for span in spans]
        left_s = max(limit_s - fluid_s - _RETURN_S, 0.0)
        runs = list(pool.map(_exact, repeat(question), variants, repeat(start_s), replicas, repeat(left_s)))
        return WhatIfAnswer(fluid, _compared_runs(question, start_s, runs, clock.monotonic() - began - fluid_s))


def _compared_spans(question: WhatIf, spans: Sequence[FluidSpan], limit_s: float, took_s: float) -> Compared:
    end_s = min(span.end_s for span in spans)
    if end_s <= question.warm_up_s:
        least_s = min(HOUR_S, question.span_s - question.warm_up_s)
        part = f"in its part, {FLUID_SHARE * limit_s:.0f}s, the fluid model"
        missed = f"did not play the first {least_s / 60:.0f} minutes that count"
        raise InvalidInput("--time-limit", f"{part} {missed}; raise it")
    as_is, would_be = (span.outcome(end_s, question.gpus) for span in spans)
    return Compared(question.warm_up_s, end_s, took_s, as_is, would_be)


def _compared_runs(question: WhatIf, start_s: float, runs: Sequence[ExactRun], took_s: float) -> Compared | str:
    """Over what both have reached, or why there is nothing to compare."""
    end_s = min(run.scored_s for run in runs)
    if end_s - EXACT_WARM_UP_S < LEAST_S:
        return "no time was left for it; raise --time-limit"
    count = min(run.offered(end_s) for run in runs)
    if count < LEAST_REQUESTS:
        return f"{counted(count, 'request')} came in its time, too few to judge by"
    as_is, would_be = (
        run.outcome(end_s, question.promise(variant), question.gpus)
        for run, variant in zip(runs, (question.as_is, question.would_be), strict=True)
    )
    return Compared(start_s + EXACT_WARM_UP_S, start_s + end_s, took_s, as_is, would_be)


def _ordered(span: FluidSpan, at: float) -> int:
    """The replicas that were ordered in the fluid model then."""
    return next(moment.desired for moment in reversed(span.moments) if moment.at <= at)


def _fluid(question: WhatIf, variant: ServiceVariant, seconds: float) -> FluidSpan:
    return question.fluid(variant, _after(seconds))


def _exact(question: WhatIf, variant: ServiceVariant, start_s: float, replicas: int, seconds: float) -> ExactRun:
    return question.exact(variant, start_s, max(replicas, 1), _after(seconds))


def _after(seconds: float) -> Callable[[], bool]:
    """Whether so much time has passed since this call."""
    clock = SystemClock()
    until = clock.monotonic() + seconds
    return lambda: clock.monotonic() >= until


@contextmanager
def _processes() -> Iterator[ProcessPoolExecutor]:
    pool = ProcessPoolExecutor(2, get_context("spawn"), _ignore_interrupts)
    try:
        yield pool
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            child.terminate()


def _ignore_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
