"""Time for the engine's loop: `now`, and a wait that ends close to its target.

The kernel's timer slack (50 us) and the wake-up make a sleep end late. So most of a wait is a sleep, and the last SPIN
seconds are polled. More would occupy a core that other emulated workers need; less would miss the target.
"""

import os
import time
from collections.abc import Callable
from typing import Protocol

SPIN = 0.0003
_ROUNDS = 5


class Timer(Protocol):
    """Monotonic seconds."""

    def now(self) -> float:
        """Seconds since an arbitrary point; never decreases."""
        ...

    def until(self, target: float) -> None:
        """Return at `target`, or at once if it has passed."""
        ...


class SystemTimer:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    def until(self, target: float) -> None:
        rest = target - time.monotonic()
        if rest > SPIN:
            time.sleep(rest - SPIN)
        while time.monotonic() < target:
            pass


def quickest(run: Callable[[], object], timer: Timer) -> float:
    """Seconds of the quickest of some runs: other work on the machine delays some of them, but rarely all."""
    seconds = []
    for _ in range(_ROUNDS):
        begin = timer.now()
        run()
        seconds.append(timer.now() - begin)
    return min(seconds)


def hurry() -> bool:
    """Ask the kernel for real-time priority for this process; False if that is not allowed (it needs CAP_SYS_NICE).

    For emulated engines: they compute next to nothing, but a busy host would end their steps late. On two saturated
    cores the 99th percentile of a 6 ms step's lateness fell from 170 % to nothing.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR | os.SCHED_RESET_ON_FORK, os.sched_param(1))
    except (AttributeError, OSError):
        return False
    return True
