"""Keeps the history of each role's work, and the knowledge that decisions have of it. No I/O.

The knowledge is renewed when it has grown by RENEW_SHARE, so that ledgers have a long one once for many entries.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from paceline_autoscaler.model.estimate import work_rates
from paceline_autoscaler.model.unknown_work import UnknownSpan, filled, unknown_spans
from paceline_autoscaler.model.work_history import BIN_S, WorkHistory, WorkMeter
from paceline_autoscaler.state import Knowledge, LearnedState
from paceline_autoscaler.types import Observation, Role

RENEW_S, RENEW_SHARE = 600.0, 1 / 24
"""Once an hour for a day's history, and not before this time."""


@dataclass(slots=True)
class HistoryRecorder:
    """Begins with the histories of the first knowledge that it gets. `worked`: how many passes have shown work."""

    worked: int = 0
    _meters: dict[Role, WorkMeter] = field(default_factory=dict)
    _seen: float | None = None
    _renewed: float | None = None

    @property
    def histories(self) -> tuple[tuple[Role, WorkHistory], ...]:
        """Of the work until now, by role."""
        return tuple((role, meter.history) for role, meter in self._meters.items())

    def resume(self, stored: Knowledge) -> Knowledge:
        """Go on from what an earlier process has stored; returns the knowledge of both."""
        for role, history in stored.histories:
            meter = self._meters.setdefault(role, WorkMeter())
            meter.history = history.continued_by(meter.history)
        return replace(stored, histories=self.histories)

    def unknown(self, now: float) -> tuple[UnknownSpan, ...]:
        """Spans of the last seven days that are not known."""
        return unknown_spans([history for _, history in self.histories], now)

    def fill(self, found: Iterable[tuple[Role, WorkHistory]], before: Knowledge) -> Knowledge:
        """Take in what another source knows of bins that are not known here; returns the knowledge of both.

        Less than RENEW_S in all is no knowledge yet: the mean of a burst is not what is usual.
        """
        for role, history in found:
            meter = self._meters.setdefault(role, WorkMeter())
            meter.history = filled(meter.history, history)
        return replace(before, histories=self.histories) if _known_s(self.histories) >= RENEW_S else before

    def knowledge(self, observation: Observation, learned: LearnedState, before: Knowledge) -> Knowledge:
        """Note the work that this observation shows; returns `before`, or knowledge of the work until now."""
        now = observation.now
        if self._seen is None:
            self._meters = {role: WorkMeter(history) for role, history in before.histories} | self._meters
            self._renewed = now
        elif observation.demand.heard >= max(observation.demand.expected, 1):
            for role, (rate, seconds) in work_rates(observation, learned, now - self._seen).items():
                self._meters.setdefault(role, WorkMeter()).add(now, rate, seconds)
                self.worked += rate > 0
        self._seen = now
        if self._renewed is None or now - self._renewed < max(RENEW_S, RENEW_SHARE * _known_s(before.histories)):
            return before
        self._renewed = now
        return replace(before, histories=self.histories)


def _known_s(histories: Iterable[tuple[Role, WorkHistory]]) -> float:
    """How much is known of the longest."""
    return max((history.known for _, history in histories), default=0) * BIN_S
