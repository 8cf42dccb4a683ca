"""Alerts on a promise that is being broken: the share of bad requests, against limits made from its budget.

A page needs the share over a long and a short window above the limit, so that it starts soon and ends soon, and ten bad
requests, so that one bad request at night pages no one. The limits are recorded (`recording.py`): a multiple of the
budget, capped at what can happen. Known hole: a limit below the budget is dropped, so a promise of half of the requests
(p50) is only ever a ticket.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tools.dashboards.promql import TARGET, select
from tools.dashboards.rules import Alert, Group, Severity


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a budget burns: the pair of windows, the limit's name and how many bad requests it takes."""

    name: str
    level: str
    long: str
    short: str
    wait: str
    least: int


FAST = Speed("Fast", "fast", "1h", "5m", "2m", 10)
SLOW = Speed("Slow", "slow", "6h", "30m", "5m", 10)
TICKETS = (Speed("", "ticket", "1d", "2h", "10m", 3), Speed("", "budget", "3d", "6h", "10m", 3))
INDICATORS = {"TTFT": "ttft_.+", "TPOT": "tpot_.+", "E2E": "e2e_.+", "Availability": "availability"}


def group() -> Group:
    """Two pages for each indicator, and two tickets for all."""
    return Group("paceline-burn", [*_pages(), *(_ticket(speed) for speed in TICKETS)])


def _pages() -> Iterator[Alert]:
    for indicator, slos in INDICATORS.items():
        for speed in (FAST, SLOW):
            yield Alert(
                f"Paceline{indicator}Burn{speed.name}",
                _expr(speed, slos),
                Severity.PAGE,
                "{{ $labels.pisvc_namespace }}/{{ $labels.pisvc }} breaks its promise {{ $labels.slo }}",
                _description(speed),
                speed.wait,
            )


def _ticket(speed: Speed) -> Alert:
    summary = (
        "{{ $labels.pisvc_namespace }}/{{ $labels.pisvc }} spends the budget of {{ $labels.slo }} faster than it grows"
    )
    labels = {"window": speed.long}
    return Alert(
        "PacelineErrorBudgetTicket",
        _expr(speed, ".+"),
        Severity.TICKET,
        summary,
        _description(speed),
        speed.wait,
        labels,
    )


def _expr(speed: Speed, slos: str) -> str:
    match = {"slo": f"~{slos}"}
    long, short = (select(f"paceline:slo_bad:ratio{window}", match) for window in (speed.long, speed.short))
    # increase() extrapolates, so that ten events may be counted as 9.9 of them.
    enough = f"{select(f'paceline:slo_bad:increase{speed.long}', match)} > {speed.least - 0.5}"
    limit = f"paceline:slo_{speed.level}:ratio"
    return f"{long} > {limit}\nand\n{short} > {limit}\nand\n{enough}"


def _description(speed: Speed) -> str:
    budget = _looked_up("paceline:slo_budget:ratio", "humanizePercentage")
    left = _looked_up(f"paceline:slo_exhaustion:seconds{speed.long}", "humanizeDuration")
    return (
        "{{ $value | humanizePercentage }} of the {{ $labels.class }} requests of the last "
        f"{speed.long} missed {{{{ $labels.slo }}}}; the promise leaves room for {budget}. "
        f"At this rate a whole budget is gone in {left}."
    )


def _looked_up(series: str, form: str) -> str:
    """A template that asks for the alert's own series of another name, and says so where there is none."""
    place = ", ".join(f"{label}='%s'" for label in TARGET)
    values = " ".join(f"$labels.{label}" for label in TARGET)
    text = f'printf "{series}{{{place}}}" {values} | query'
    return f"{{{{ with {text} }}}}{{{{ . | first | value | {form} }}}}{{{{ else }}}}unknown{{{{ end }}}}"
