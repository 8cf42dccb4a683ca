"""Runs of a study in processes of their own, as many as there are cores. An interrupt ends them all.

A file of its own: no other part of the command knows of processes and signals. The processes ignore SIGINT, which a
terminal sends to all of them; the parent ends them. It looks for a signal between two waits: an exception in the middle
of `wait` would leave locks held that the pool's own thread needs. Each process writes how far its run is into memory
that all share.
"""

import os
import signal
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from threading import Event

from paceline_core.errors import PacelineError
from paceline_simulator.study import Study
from paceline_simulator.study_rows import StudyRow

_REFRESH_S = 0.5
_shares: MutableSequence[float]
"""In a process of the pool: how much of each run is done."""


def simulate_runs(
    study: Study, runs: Sequence[tuple[str, int]], done: Callable[[StudyRow], None], moved: Callable[[float], None]
) -> None:
    """Call `done` with each row as its run ends, and `moved` twice a second with the number of runs that are done,
    in fractions. Raises KeyboardInterrupt at SIGINT and SIGTERM.
    """
    context = get_context("spawn")  # a forked process would inherit the terminal's progress bar
    shares = context.Array("d", len(runs), lock=False)
    pool = ProcessPoolExecutor(min(os.cpu_count() or 1, len(runs)), context, _share, (shares,))
    stop = Event()
    try:
        with _handling(signal.SIG_IGN, signal.SIGINT):
            running = {pool.submit(_run, study, run, place) for place, run in enumerate(runs)}
        with _handling(lambda *_: stop.set(), signal.SIGINT, signal.SIGTERM):
            while running:
                ended, running = wait(running, _REFRESH_S, FIRST_COMPLETED)
                if stop.is_set():
                    raise KeyboardInterrupt
                for future in ended:
                    done(future.result())
                moved(sum(shares))
        pool.shutdown()
    except BrokenProcessPool:
        fix = "it was probably short of memory: play less of the trace with --span, or fewer copies with --times"
        raise PacelineError(f"a process of the simulation was killed; {fix}") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            child.terminate()


def _share(shares: MutableSequence[float]) -> None:
    global _shares  # noqa: PLW0603 - a pool's function takes nothing that is shared
    _shares = shares


def _run(study: Study, run: tuple[str, int], place: int) -> StudyRow:
    def progress(share: float) -> None:
        _shares[place] = share

    row = study.run(*run, progress)
    progress(1.0)
    return row


@contextmanager
def _handling(handler: signal.Handlers | Callable[..., object], *numbers: signal.Signals) -> Iterator[None]:
    """Handle the signals so during the block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
