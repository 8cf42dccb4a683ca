"""When an engine counts as hung, and how long to wait before the next one. Pure.

An engine is silent while it computes one step, and may be silent while it has nothing to do; so silence is measured
from the later of its last frame and the moment work arrived, and only while there is work. A step may be long, a first
one may compile: while its process uses the CPU it is at work, and only silence without work is short of patience. One
that computes and says nothing for PATIENCE times as long is hung too: it runs in circles.
An engine that sleeps while a GPU computes says by itself that its step gets on.
Known hole: a process that spins while it waits for a device counts as at work.
"""

from dataclasses import dataclass

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 30.0
PATIENCE = 10
SHARE = 0.01
"""Of a core: what a process must use to be at work."""


@dataclass(slots=True)
class CpuActivity:
    """When a process last used the CPU, from its seconds of CPU time as they are told now and then."""

    at: float
    seconds: float = 0.0
    reported_at: float = 0.0

    def report(self, seconds: float | None, now: float) -> None:
        """None is not known, and takes nobody for idle."""
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
