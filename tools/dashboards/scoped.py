"""The expressions of `promql` narrowed to what the reader of a board chose."""

from tools.dashboards import promql
from tools.dashboards.panels import Query, here
from tools.dashboards.promql import ANY, Match, quantile, ratio

__all__ = ["mean", "percentiles", "promised", "quantile_of", "rate", "ratio", "select", "total"]


def select(name: str, extra: Match = ANY) -> str:
    """The chosen services' series."""
    return promql.select(name, here(name, extra))


def total(name: str, by: tuple[str, ...] = (), extra: Match = ANY, how: str = "sum") -> str:
    """An aggregate over the chosen services."""
    return promql.total(name, by, here(name, extra), how)


def rate(name: str, by: tuple[str, ...] = (), extra: Match = ANY) -> str:
    """Events per second of the chosen services."""
    return promql.rate(name, by, here(name, extra))


def mean(histogram: str, by: tuple[str, ...] = (), extra: Match = ANY) -> str:
    """The mean of what the chosen services' histogram saw."""
    return promql.mean(histogram, by, here(f"{histogram}_sum", extra))


def quantile_of(share: float, histogram: str, by: tuple[str, ...] = ()) -> str:
    """A quantile of what the chosen services' histogram saw."""
    return quantile(share, histogram, by, here(f"{histogram}_sum"))


def percentiles(histogram: str, quiet: bool = False) -> tuple[Query, ...]:
    """p50, p95 and p99 of a histogram."""
    shares = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
    return tuple(Query(quantile_of(share, histogram), name, quiet) for name, share in shares.items())


def promised(metric: str) -> Query:
    """The targets of a metric, as lines to compare with; a service without an SLO has none."""
    by = ("class", "slo")
    expr = total("paceline_slo_threshold_seconds", by, {"slo": f"~{metric}_.+"}, "max")
    return Query(expr, "promised {{class}} {{slo}}", quiet=True)
