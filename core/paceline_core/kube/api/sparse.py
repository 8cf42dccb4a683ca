"""Logs at most one line a second for each cause, and says how many were left out."""

from typing import Final

from paceline_core.clock import Clock

GAP_S: Final = 1.0
CAUSES: Final = 64


class LogLimiter:
    """`admit(cause)` answers how many lines of this cause were left out before this one, or None: leave this out too.

    Causes come from a closed set in the code; over `CAUSES` of them the oldest is forgotten.
    """

    def __init__(self, clock: Clock, gap_s: float = GAP_S) -> None:
        self._clock = clock
        self._gap_s = gap_s
        self._seen: dict[str, tuple[float, int]] = {}

    def admit(self, cause: str) -> int | None:
        """Whether a line may be written now."""
        now = self._clock.monotonic()
        last, left_out = self._seen.get(cause, (-self._gap_s, 0))
        if now - last < self._gap_s:
            self._seen[cause] = (last, left_out + 1)
            return None
        self._seen[cause] = (now, 0)
        if len(self._seen) > CAUSES:
            self._seen.pop(next(iter(self._seen)))
        return left_out
