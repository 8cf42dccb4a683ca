"""Requests that gateways have isolated, as Events: each once. Pure.

A gateway says its last few in every line, so that a lost line loses none. What a line brings that its gateway's line
before did not have is news; so is, of a gateway that is heard for the first time, what is younger than FRESH_S. Hole:
an autoscaler that takes the lease over in between tells nothing of what its predecessor had heard and not told.
"""

from collections import deque
from datetime import datetime, timedelta

from paceline_core.kube import Event, ObjectKey
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_core.wire import DemandReport, Isolated

FRESH_S = 60.0
WAITING = 64
"""Not told yet, over all services; older ones are dropped."""
GATEWAYS = 1024
"""Remembered, replaced pods among them; the one that was heard least lately is forgotten first."""
Told = tuple[str, Isolated]


class IsolationEvents:
    """Isolations by gateway; `waiting` are those that no Event tells of yet."""

    def __init__(self) -> None:
        self._heard: dict[str, frozenset[Told]] = {}
        self.waiting: deque[Told] = deque(maxlen=WAITING)

    def on(self, report: DemandReport, now: datetime) -> bool:
        """Take one line; whether it has news."""
        told = frozenset((service.service, each) for service in report.services for each in service.isolated)
        before = self._heard.pop(report.gateway, None)
        news = [each for each in told if _fresh(each[1], now)] if before is None else told - before
        self._heard[report.gateway] = told
        if len(self._heard) > GATEWAYS:
            del self._heard[next(iter(self._heard))]
        self.waiting.extend(sorted(news, key=lambda each: each[1].at))
        return bool(news)

    def take(self) -> list[Told]:
        """Take those that wait to be told."""
        waiting = list(self.waiting)
        self.waiting.clear()
        return waiting


def event(service: str, told: Isolated) -> Event:
    """The Event of one isolation."""
    who = f"Request {told.request} of tenant {told.tenant}"
    message = f"{who} is isolated: two workers died of it, the last one {told.worker}."
    extra = {"tenant": told.tenant, "request-id": told.request}
    return Event(INFERENCE_SERVICE, ObjectKey.parse(service), "Warning", "RequestIsolated", message, extra)


def _fresh(told: Isolated, now: datetime) -> bool:
    try:
        at = datetime.fromisoformat(told.at)
    except ValueError:
        return False
    return at.tzinfo is not None and now - at <= timedelta(seconds=FRESH_S)
