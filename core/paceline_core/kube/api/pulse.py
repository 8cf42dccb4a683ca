"""When a watch last heard from the API server: what liveness is judged by."""

from collections.abc import Iterable

from paceline_core.clock import Clock, SystemClock


class Pulse:
    """Stamped on every byte of a watch, bookmarks and the heads of answers included: each `Limits.silence` at least."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._last = self._clock.monotonic()

    def stamp(self) -> None:
        """A byte came."""
        self._last = self._clock.monotonic()

    def age(self, now: float) -> float:
        """Seconds since the last byte; before the first one, since it was made."""
        return now - self._last


def oldest(pulses: Iterable[Pulse], now: float) -> tuple[str, float]:
    """The watch that was silent longest, and for how long; `("", 0)` without any."""
    ages = [(pulse.age(now), pulse.name) for pulse in pulses]
    age, name = max(ages, default=(0.0, ""))
    return name, age
