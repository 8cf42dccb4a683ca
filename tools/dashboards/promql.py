"""PromQL from the registry's rows: a metric, a label or a closed value that does not exist cannot be written.

A matcher's text is `value`, `~regex`, `!value` or `!~regex`. Values of labels with a closed set are checked against it;
of a regex only plain alternatives (`a|b`) are.
"""

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from paceline_core.registry import METRICS, Kind, Outcome, Phase, RequestClass, Verdict
from paceline_core.registry.enums import Direction, QueryResult, ScaleLimit, ScaleReason
from paceline_core.registry.metrics import SERVICE

Match = Mapping[str, str]
ANY: Match = MappingProxyType({})
RATE = "$__rate_interval"
WINDOWS = ("5m", "30m", "1h", "2h", "6h", "1d", "3d")
LONG = ("1h", "6h", "1d", "3d")
TARGET = (*SERVICE, "class", "slo")

_CLOSED: Mapping[str, type[StrEnum]] = {
    "class": RequestClass,
    "direction": Direction,
    "limit": ScaleLimit,
    "outcome": Outcome,
    "phase": Phase,
    "result": QueryResult,
    "verdict": Verdict,
}
_REASONS = {"paceline_autoscaler_decisions_total": ScaleReason}


def recorded() -> dict[str, tuple[str, ...]]:
    """Every series that our recording rules write, with its labels."""
    stems = ("slo_judged:increase", "slo_bad:increase", "slo_bad:ratio", "slo_burn:ratio")
    by_window = {f"paceline:{stem}{window}": TARGET for stem in stems for window in WINDOWS}
    left = {f"paceline:slo_exhaustion:seconds{window}": TARGET for window in LONG}
    levels = dict.fromkeys((f"paceline:slo_{level}:ratio" for level in ("objective", "budget", *LEVELS)), TARGET)
    pools = dict.fromkeys(("paceline:replicas_missing:count", "paceline:cold_start:seconds"), (*SERVICE, "pool"))
    return {**levels, **by_window, **left, **pools}


LEVELS: Mapping[str, tuple[float, float]] = {"fast": (14.4, 0.30), "slow": (6.0, 0.15), "ticket": (3.0, 0.10)}
"""Name of a limit on the bad share: its multiple of the budget, and its cap."""

RECORDED: Mapping[str, tuple[str, ...]] = recorded()


def labels_of(name: str) -> tuple[str, ...]:
    """The labels of a series, as exported or recorded; a histogram's are its `_bucket`, `_sum` and `_count`."""
    if name in RECORDED:
        return RECORDED[name]
    if name in METRICS and METRICS[name].kind is not Kind.HISTOGRAM:
        return METRICS[name].labels
    family, _, suffix = name.rpartition("_")
    if family in METRICS and METRICS[family].kind is Kind.HISTOGRAM and suffix in {"bucket", "sum", "count"}:
        return (*METRICS[family].labels, "le") if suffix == "bucket" else METRICS[family].labels
    raise KeyError(f"{name}: neither exported nor recorded")


def select(name: str, match: Match = ANY) -> str:
    """`name{...}`; raises for a label or value that the series cannot have."""
    known = labels_of(name)
    parts = []
    for label, text in match.items():
        if label not in known:
            raise KeyError(f"{name} has no label {label}")
        operator, value = _split(text)
        _check(name, label, value)
        parts.append(f'{label}{operator}"{value}"')
    return f"{name}{{{', '.join(parts)}}}" if parts else name


def total(name: str, by: tuple[str, ...] = (), match: Match = ANY, how: str = "sum") -> str:
    """An aggregate of a gauge or of a recorded series."""
    return _grouped(how, by, name, select(name, match))


def rate(name: str, by: tuple[str, ...] = (), match: Match = ANY, window: str = RATE) -> str:
    """Events per second, summed."""
    return _grouped("sum", by, name, f"rate({select(name, match)}[{window}])")


def growth(name: str, by: tuple[str, ...] = (), match: Match = ANY, window: str = RATE) -> str:
    """Events in the window, summed."""
    return _grouped("sum", by, name, f"increase({select(name, match)}[{window}])")


def quantile(share: float, histogram: str, by: tuple[str, ...] = (), match: Match = ANY) -> str:
    """A quantile of what a histogram saw in the rate interval; NaN where it saw nothing."""
    return f"histogram_quantile({share}, {rate(f'{histogram}_bucket', (*by, 'le'), match)})"


def mean(histogram: str, by: tuple[str, ...] = (), match: Match = ANY) -> str:
    """The mean of what a histogram saw in the rate interval; nothing where it saw nothing."""
    return ratio(rate(f"{histogram}_sum", by, match), rate(f"{histogram}_count", by, match))


def ratio(above: str, below: str) -> str:
    """A quotient that has no value, rather than NaN, where there is nothing to divide by."""
    return f"{above} / ({below} > 0)"


def _grouped(how: str, by: tuple[str, ...], name: str, inner: str) -> str:
    if missing := set(by) - set(labels_of(name)):
        raise KeyError(f"{name} has no label {', '.join(sorted(missing))}")
    return f"{how} by ({', '.join(by)}) ({inner})" if by else f"{how}({inner})"


def _split(text: str) -> tuple[str, str]:
    for mark, operator in (("!~", "!~"), ("~", "=~"), ("!", "!=")):
        if text.startswith(mark):
            return operator, text.removeprefix(mark)
    return "=", text


def _check(name: str, label: str, value: str) -> None:
    closed = _REASONS.get(name) if label == "reason" else _CLOSED.get(label)
    if closed is None or "$" in value or ".*" in value:
        return
    for one in value.split("|"):
        if one not in set(closed):
            raise ValueError(f"{name}: {label} is never {one!r}")
