"""When an engine counts as hung, and how long to wait before the next start. Pure.

An engine is silent during a step, and may be silent while it has no work. So silence counts only while there is work,
from the later of its last frame and the arrival of the work. A step may be long and the first one may compile: while
the process uses the CPU it is working, and the limit applies only to silence without CPU use. An engine that computes
in silence for PATIENCE times the limit counts as hung too: it is in an endless loop. An engine that sleeps while a GPU
computes reports the progress of its step itself.
Known hole: a process that spins while it waits for a device counts as working.
"""

from dataclasses import dataclass

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 30.0
PATIENCE = 10
SHARE = 0.01
"""The share of a core that a working process uses at least."""


@dataclass(slots=True)
class CpuActivity:
    """When a process last used the CPU, from periodic reports of its seconds of CPU time."""

    at: float
    seconds: float = 0.0
    reported_at: float = 0.0

    def report(self, seconds: float | None, now: float) -> None:
        """Record CPU seconds; None means unknown, and counts as working."""
        if seconds is None or seconds - self.seconds >= SHARE * (now - self.reported_at):
            self.at = now
        self.seconds, self.reported_at = seconds or 0.0, now


def hung(now: float, heard_at: float, worked_at: float, busy_since: float | None, limit: float) -> bool:
    """Whether an engine is to be killed that may say and do nothing for `limit` seconds."""
    idle = silence(now, max(heard_at, worked_at), busy_since)
    return idle > limit or silence(now, heard_at, busy_since) > PATIENCE * limit


def silence(now: float, heard_at: float, busy_since: float | None) -> float:
    """Seconds that the engine has owed a sign of life: 0 without work (`busy_since` is None)."""
    return 0.0 if busy_since is None else max(now - max(heard_at, busy_since), 0.0)


def restart_delay(failures: int) -> float:
    """Seconds before the next start after `failures` >= 1 engines in a row: doubling, capped."""
    return float(min(FIRST_DELAY_S * 2 ** min(failures - 1, 30), LONGEST_DELAY_S))
