"""How fast a service's error budgets burn, by the verdicts that this gateway gave in the last minute. Pure."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline_core.registry.enums import RequestClass, Verdict
from paceline_gateway.request.slo import Verdicts

WINDOW_S = 60
_GOOD = Verdict.GOOD
Indicator = tuple[RequestClass, str]
"""A class and the name of one of its SLOs."""


@dataclass(slots=True)
class _Counts:
    judged: Counter[Indicator] = field(default_factory=Counter)
    missed: Counter[Indicator] = field(default_factory=Counter)


class BurnWindow:
    """Verdicts by the second. `now` is monotonic seconds."""

    def __init__(self) -> None:
        self._seconds: deque[tuple[int, _Counts]] = deque()
        self._total = _Counts()

    def __bool__(self) -> bool:
        """Whether it holds any verdict."""
        return bool(self._seconds)

    def add(self, name: RequestClass, verdicts: Verdicts, now: float) -> None:
        """Count the verdicts on one request of this class."""
        self._drop(now)
        if not self._seconds or self._seconds[-1][0] != int(now):
            self._seconds.append((int(now), _Counts()))
        for counts in (self._total, self._seconds[-1][1]):
            for slo, verdict in verdicts:
                counts.judged[name, slo] += 1
                counts.missed[name, slo] += verdict is not _GOOD

    def worst(self, objectives: Mapping[Indicator, float], now: float) -> float | None:
        """The largest burn of these SLOs; None if no SLO had enough requests.

        With few requests a single miss is a burn above 1, so an SLO counts only once one of them may be a miss.
        """
        self._drop(now)
        allowed = {slo: (1 - objective) * self._total.judged[slo] for slo, objective in objectives.items()}
        return max((self._total.missed[slo] / may for slo, may in allowed.items() if may >= 1), default=None)

    def _drop(self, now: float) -> None:
        while self._seconds and self._seconds[0][0] <= now - WINDOW_S:
            _, old = self._seconds.popleft()
            self._total.judged.subtract(old.judged)
            self._total.missed.subtract(old.missed)
