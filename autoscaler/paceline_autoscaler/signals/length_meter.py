"""How long completed requests were, from the cumulative counts in gateways' demand reports.

A gateway that is seen for the first time only sets the baseline, since what it counted before may be in the stored
summary; a service without one takes all that is counted. A gateway whose counts fell has started anew.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from paceline_autoscaler.model.lengths import Lengths, LengthSummary, with_requests
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import ClassLengths, DemandReport

FORGET_S = 3600.0
"""A gateway without a report for so long is gone."""
_Kind = tuple[str, RequestClass]


@dataclass(slots=True)
class LengthMeter:
    """`take` gives each completed request of a service once."""

    _gateways: dict[str, tuple[float, dict[_Kind, LengthSummary]]] = field(default_factory=dict)
    _new: dict[str, Lengths] = field(default_factory=dict)

    def on(self, report: DemandReport, now: float) -> None:
        """Take in a report; most have no lengths."""
        rows = {(s.service, row.name): _summary(row) for s in report.services for row in s.lengths}
        if not rows:
            return
        known = self._gateways.get(report.gateway)
        for kind, row in rows.items():
            if known is not None:
                self._add(kind[0], row, known[1].get(kind))
        before: Mapping[_Kind, LengthSummary] = {} if known is None else known[1]
        self._gateways[report.gateway] = (now, {**before, **rows})
        for name in [name for name, (at, _) in self._gateways.items() if now - at > FORGET_S]:
            del self._gateways[name]

    def take(self, service: str, *, whole: bool = False) -> Lengths:
        """The requests that were completed since the last call; `whole`: all that the gateways have counted."""
        new = self._new.pop(service, ())
        if not whole:
            return new
        known = [row for _, rows in self._gateways.values() for (name, _), row in rows.items() if name == service]
        return with_requests((), known, 0.0)

    def _add(self, service: str, row: LengthSummary, before: LengthSummary | None) -> None:
        old = LengthSummary(row.name) if before is None or before.requests > row.requests else before
        if row.requests > old.requests:
            self._new[service] = with_requests(self._new.get(service, ()), [row.plus(old, -1.0)], 0.0)


def _summary(row: ClassLengths) -> LengthSummary:
    return LengthSummary(
        row.name, row.requests, row.prompt_tokens, row.cached_tokens, row.output_tokens, row.prompts, row.outputs
    )
