"""Runs of a study in processes of their own, as many as there are cores. An interrupt ends them all.

A file of its own: no other part of the command knows of processes and signals. The processes ignore SIGINT, which a
terminal sends to all of them; the parent ends them.
"""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context

from paceline_core.errors import PacelineError
from paceline_simulator.study import Study
from paceline_simulator.study_rows import StudyRow


def simulate_runs(study: Study, runs: Sequence[tuple[str, int]], done: Callable[[StudyRow], None]) -> None:
    """Call `done` with each row as its run ends. Raises KeyboardInterrupt at SIGINT and SIGTERM."""
    workers = min(os.cpu_count() or 1, len(runs))
    pool = ProcessPoolExecutor(workers, get_context("spawn"))  # a forked one would inherit the terminal's progress bar
    try:
        with _handling(signal.SIG_IGN, signal.SIGINT):
            futures = [pool.submit(study.run, policy, seed) for policy, seed in runs]
        with _handling(signal.default_int_handler, signal.SIGINT, signal.SIGTERM):
            for future in as_completed(futures):
                done(future.result())
        pool.shutdown()
    except BrokenProcessPool:
        fix = "it was probably short of memory: play less of the trace with --span, or fewer copies with --times"
        raise PacelineError(f"a process of the simulation was killed; {fix}") from None
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in active_children():
            child.terminate()


@contextmanager
def _handling(handler: signal.Handlers | Callable[..., object], *numbers: signal.Signals) -> Iterator[None]:
    """Handle the signals so during the block."""
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
