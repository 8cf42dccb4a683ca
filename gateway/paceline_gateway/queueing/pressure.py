"""Pressure on a service: whether it has broken its promise for long enough to serve less, and has kept it long enough
to stop. Pure.

The state is fed a few times a second with whether the promise is broken now; what is unknown is not broken. Pressure
holds for those who wait `after_s` once every observation of so long a time said so; a gap in the observations begins
the time anew. It ends when none has said so for the recovery time. That is RECOVERY_S, and twice the last one, at most
MAX_RECOVERY_S, if the pressure returns within the recovery time after its end: serving less relieves the service, so a
lasting lack of capacity would otherwise switch it on and off.
"""

from math import inf

AFTER_S = 10.0
"""How long a service must be overloaded before it defers batch and refuses offline requests."""
RECOVERY_S = 10.0
MAX_RECOVERY_S = 160.0
MAX_GAP_S = 2.0


class PressureState:
    """`now` is monotonic seconds."""

    __slots__ = ("_broken_at", "_ended", "_lasted", "_observed", "_recovery_s", "_since")

    def __init__(self) -> None:
        self._since: float | None = None
        self._lasted = -inf
        self._broken_at = -inf
        self._observed = -inf
        self._ended = -inf
        self._recovery_s = RECOVERY_S

    @property
    def lasting(self) -> bool:
        """Whether it holds for the service itself."""
        return self.holds(AFTER_S)

    def holds(self, after_s: float) -> bool:
        """Whether it has lasted `after_s`, and is not over since."""
        return self._lasted >= after_s

    def observe(self, broken: bool, now: float) -> None:
        """Note whether the promise is broken at this time."""
        if not broken or now - self._observed > MAX_GAP_S:
            self._since = None
        self._observed = now
        if broken:
            self._extend(now)
        elif now - self._broken_at >= self._recovery_s:
            self._ended = now if self.lasting else self._ended
            self._lasted = -inf

    def _extend(self, now: float) -> None:
        if self._lasted < 0:
            again = now - self._ended < self._recovery_s
            self._recovery_s = min(2 * self._recovery_s, MAX_RECOVERY_S) if again else RECOVERY_S
        self._since = now if self._since is None else self._since
        self._lasted, self._broken_at = max(self._lasted, now - self._since), now
