"""One time for everything that is remembered: Unix seconds that never go back within a process.

The wall clock is read once, the monotonic clock from then on; so a step of the wall clock moves no window, and a State
written by one process means the same to the next, up to the difference of their clocks.
"""

from collections.abc import Callable

from paceline_core.clock import Clock

Now = Callable[[], float]


def unix_clock(clock: Clock) -> Now:
    """`now()` in Unix seconds, anchored here."""
    offset = clock.utc().timestamp() - clock.monotonic()
    return lambda: offset + clock.monotonic()
