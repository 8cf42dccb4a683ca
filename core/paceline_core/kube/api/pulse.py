"""When a watch last heard from the API server: what liveness is judged by.

A refusal (401, 403) is an answer too: it ages what is known, and a new process would be refused as well. So `age` goes
on through refusals, and `silence`, by which a process is restarted, does not.
"""

from collections.abc import Iterable

from paceline_core.clock import Clock, SystemClock


class WatchLiveness:
    """Stamped on every byte of a watch, bookmarks and the heads of answers included: each `ClientTimeouts.silence` at
    least."""

    def __init__(self, name: str, clock: Clock | None = None) -> None:
        self.name = name
        self._clock = clock or SystemClock()
        self._last = self._answered = self._clock.monotonic()

    def stamp(self) -> None:
        """A byte came."""
        self._last = self._answered = self._clock.monotonic()

    def refused(self) -> None:
        """The API server answered that the watch is not allowed."""
        self._answered = self._clock.monotonic()

    def age(self, now: float) -> float:
        """Seconds since the last byte; before the first one, since it was made."""
        return now - self._last

    def silence(self, now: float) -> float:
        """Seconds since the last byte or refusal."""
        return now - self._answered


def oldest(pulses: Iterable[WatchLiveness], now: float) -> tuple[str, float]:
    """The watch that was silent longest, and for how long; `("", 0)` without any."""
    ages = [(pulse.age(now), pulse.name) for pulse in pulses]
    age, name = max(ages, default=(0.0, ""))
    return name, age
