"""Circuit breaker: keeps requests away from a worker that failed, for longer with every further failure.

    CLOSED --failure--> OPEN (PAUSE_S, doubled each time up to MAX_PAUSE_S) --time--> HALF_OPEN (one probe)
       ^                  ^                                                            |
       +---- success -----+--------------------------- failure ------------------------+

A probe's success closes it. A worker that succeeds only sometimes is detected by its ratio: while half of its last
outcomes are failures, the next pause is longer in spite of the successes. After PAUSE_S without an outcome, a probe no
longer blocks the next one: a long prompt must not keep a worker out.

The pool bounds how many workers may be left out together (`ejected`).
"""

from collections import deque
from collections.abc import Mapping
from enum import StrEnum

PAUSE_S = 1.0
MAX_PAUSE_S = 32.0
WINDOW = 20
MIN_SAMPLES = 10
RATIO = 0.5
SHARE = 0.5
"""The largest share of a pool's workers that may be left out for longer than a first pause."""
_NEVER = float("-inf")


class BreakerState(StrEnum):
    """A breaker's state; the values are the metric's label `circuit`."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """One worker's breaker. Requests are identified by their numbers; `now` is monotonic seconds."""

    __slots__ = ("_outcomes", "_pauses", "_probed", "_probes", "broken", "failed_at", "until")

    def __init__(self) -> None:
        self._outcomes: deque[bool] = deque(maxlen=WINDOW)
        self.broken = False
        """The breaker is not closed."""
        self._pauses = 0
        self._probes: set[int] = set()
        self._probed = _NEVER
        self.failed_at = _NEVER
        """When the last pause began."""
        self.until = _NEVER
        """When the last pause ends."""

    def state(self, now: float) -> BreakerState:
        if not self.broken:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self.until else BreakerState.HALF_OPEN

    def may_probe(self, now: float) -> bool:
        """Whether one request may probe the worker while the breaker is not closed."""
        return now >= self.failed_at + PAUSE_S and (not self._probes or now >= self._probed + PAUSE_S)

    def sent(self, number: int, now: float) -> None:
        """A request goes to the worker; while the breaker is not closed it is a probe."""
        if self.broken:
            self._probes.add(number)
            self._probed = now

    def left(self, number: int) -> None:
        """The request ended without showing whether the worker works."""
        self._probes.discard(number)

    def succeeded(self, number: int) -> None:
        """The worker answered the request. Requests sent before the worker failed prove nothing."""
        self._outcomes.append(True)
        if number in self._probes:
            self._probes.clear()
            self.broken = False
            outcomes = self._outcomes
            if len(outcomes) < MIN_SAMPLES or outcomes.count(False) < RATIO * len(outcomes):
                self._pauses = 0

    def failed(self, number: int, now: float) -> None:
        """The worker failed the request. Requests under way together fail together, and count as one failure."""
        if self.broken and number not in self._probes:
            return
        self._outcomes.append(False)
        self._probes.clear()
        self.broken = True
        self._pauses += 1
        self.failed_at = now
        self.until = now + min(PAUSE_S * 2.0 ** (self._pauses - 1), MAX_PAUSE_S)


def ejected(broken: Mapping[str, Breaker], size: int, now: float) -> set[str]:
    """Workers of a pool of `size` that take no requests now: those that pause, and those with a probe under way.

    Of the pausing ones at most SHARE stay out beyond a first pause, those that failed last; the others are probed. The
    share does not bound first pauses: a worker that has just failed is not tried again at once.
    """
    pausing = sorted(
        (name for name, breaker in broken.items() if now < breaker.until), key=lambda n: -broken[n].failed_at
    )
    stay = set(pausing[: int(SHARE * size)])
    return stay | {name for name, breaker in broken.items() if not breaker.may_probe(now)}
