"""The runs of a question, in two processes: both variants in the fluid model, then in the exact simulator.

An exact run stops when its time is over, so both are compared over the time that both have reached. The processes
ignore SIGINT, which a terminal sends to all; the parent ends them.
"""

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import repeat
from multiprocessing import active_children, get_context

from paceline_core.clock import SystemClock
from paceline_simulator.what_if import EXACT_WARM_UP_S, ExactRun, ServiceVariant, WhatIf, WhatIfOutcome

LEAST_S = 120.0
"""A shorter exact part says nothing."""
_RETURN_S = 2.0
"""Of the time limit, to send the results back and to write them."""


@dataclass(frozen=True, slots=True)
class Compared:
    """Both outcomes of one way to simulate, from `start_s` to `end_s` of the span, and how long it took."""

    start_s: float
    end_s: float
    took_s: float
    as_is: WhatIfOutcome
    would_be: WhatIfOutcome


@dataclass(frozen=True, slots=True)
class WhatIfAnswer:
    """`exact`: None if there was no time for it."""

    fluid: Compared
    exact: Compared | None


def answer(question: WhatIf, limit_s: float) -> WhatIfAnswer:
    """Run both variants. Only the exact part keeps to the limit; the fluid model plays the whole span."""
    clock, variants = SystemClock(), (question.as_is, question.would_be)
    began = clock.monotonic()
    with _processes() as pool:
        as_is, would_be = pool.map(question.fluid, variants)
        fluid_s = clock.monotonic() - began
        fluid = Compared(question.warm_up_s, question.span_s, fluid_s, as_is, would_be)
        left_s = limit_s - fluid_s - _RETURN_S
        if left_s <= 0:
            return WhatIfAnswer(fluid, None)
        start_s = question.worst_s(would_be)
        replicas = [_ordered(outcome, start_s) for outcome in (as_is, would_be)]
        runs = list(pool.map(_exact, repeat(question), variants, repeat(start_s), replicas, repeat(left_s)))
        return WhatIfAnswer(fluid, _compared(question, start_s, runs, clock.monotonic() - began - fluid_s))


def _compared(question: WhatIf, start_s: float, runs: Sequence[ExactRun], took_s: float) -> Compared | None:
    """Over what both have reached; None if that is too little."""
    end_s = min(run.scored_s for run in runs)
    if end_s - EXACT_WARM_UP_S < LEAST_S:
        return None
    as_is, would_be = (
        run.outcome(end_s, question.promise(variant), question.gpus)
        for run, variant in zip(runs, (question.as_is, question.would_be), strict=True)
    )
    return Compared(start_s + EXACT_WARM_UP_S, start_s + end_s, took_s, as_is, would_be)


def _ordered(outcome: WhatIfOutcome, at: float) -> int:
    """The replicas that were ordered in the fluid model then."""
    return next((desired for seconds, desired, _ in outcome.moments if seconds >= at), outcome.peak)


def _exact(question: WhatIf, variant: ServiceVariant, start_s: float, replicas: int, seconds: float) -> ExactRun:
    clock = SystemClock()
    until = clock.monotonic() + seconds
    return question.exact(variant, start_s, max(replicas, 1), lambda: clock.monotonic() >= until)


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
