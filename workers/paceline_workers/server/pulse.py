"""When an engine counts as hung, and how long to wait before the next one. Pure.

An engine is silent while it computes one step, and may be silent while it has nothing to do; so silence is measured
from the later of its last frame and the moment work arrived, and only while there is work.
"""

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 30.0


def silence(now: float, heard_at: float, busy_since: float | None) -> float:
    """Seconds that the engine has owed a sign of life: 0 without work (`busy_since` is None)."""
    return 0.0 if busy_since is None else max(now - max(heard_at, busy_since), 0.0)


def restart_delay(failures: int) -> float:
    """Seconds before the next start after `failures` >= 1 engines in a row: doubling, capped."""
    return float(min(FIRST_DELAY_S * 2 ** min(failures - 1, 30), LONGEST_DELAY_S))
