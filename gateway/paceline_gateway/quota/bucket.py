"""A token bucket that refills continuously: one minute's limit is its size, and it may go into debt when settled."""

NEVER = float("inf")


class Bucket:
    """`limit` units a minute; full at first."""

    __slots__ = ("_at", "_level", "_limit")

    def __init__(self, limit: int, now: float) -> None:
        self._limit = float(limit)
        self._level = self._limit
        self._at = now

    def wait(self, amount: float, now: float) -> float:
        """Seconds until `amount` fits: 0 if it does, NEVER if nothing ever will.

        More than the whole limit counts as the whole limit: it goes when the bucket is full, and leaves a debt.
        """
        missing = min(amount, self._limit) - self._refill(now)
        if self._limit <= 0:
            return NEVER
        return max(missing, 0.0) * 60.0 / self._limit

    def take(self, amount: float, now: float) -> None:
        """Use `amount`, into debt if it must be; a negative amount gives back, never above the limit."""
        self._level = min(self._refill(now) - amount, self._limit)

    def _refill(self, now: float) -> float:
        self._level = min(self._level + (now - self._at) * self._limit / 60.0, self._limit)
        self._at = now
        return self._level
