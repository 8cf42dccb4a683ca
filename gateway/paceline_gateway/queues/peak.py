"""How much room interactive requests need: the most of them at once lately.

The largest value of the last one to two windows; O(1). What has not been seen for that long needs no room.
"""

WINDOW_S = 60.0


class WindowedMax:
    """`now` is monotonic seconds."""

    def __init__(self) -> None:
        self._began = 0.0
        self._current = 0
        self._before = 0

    def saw(self, value: int, now: float) -> None:
        """So many at once."""
        self._turn(now)
        self._current = max(self._current, value)

    def value(self, now: float) -> int:
        """The most lately."""
        self._turn(now)
        return max(self._current, self._before)

    def _turn(self, now: float) -> None:
        age = now - self._began
        if age < WINDOW_S:
            return
        self._before = self._current if age < 2 * WINDOW_S else 0
        self._began, self._current = now, 0
