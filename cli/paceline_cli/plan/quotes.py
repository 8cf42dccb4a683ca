"""Quotes as lines and as JSON, for `paceline quote` and `kubectl paceline quote` alike."""

from collections.abc import Iterator, Sequence
from typing import Any

from paceline_cli.plan.table import promise_text
from paceline_cli.ui.rows import table
from paceline_core.units import counted
from paceline_planner.quote import Quote

_HIGHEST_PROMISED = 0.99
"""Of `slo` in a manifest, which knows p50, p90, p95 and p99."""
_HEADER = ("KEPT FOR", "REPLICAS", "$/HOUR", "LIMIT", "")


def quote_lines(quotes: Sequence[Quote], of: str) -> Iterator[str]:
    """A row for each quantile; where nothing keeps the limits, the nearest promise. `of`: what one replica is."""
    yield f"the same limits, kept for more or fewer of the requests, on replicas of {of}"
    yield from table(_HEADER, [_cells(quote) for quote in quotes])


def _cells(quote: Quote) -> tuple[str, ...]:
    share = f"{quote.quantile * 100:g}%"
    if quote.pool is not None:
        price = quote.dollars_per_hour
        cost = "unknown" if price is None else f"{price:.2f}"
        note = "a manifest promises p99 at most" if quote.quantile > _HIGHEST_PROMISED else ""
        return (share, str(quote.pool.replicas), cost, quote.pool.limit, note)
    if quote.nearest is None:
        return (share, "", "", "", "nothing keeps them, nor anything near")
    replicas = counted(quote.nearest.replicas, "replica")
    return (share, "", "", "", f"nothing keeps them; {replicas} would keep {promise_text(quote.nearest.promise)}")


def quote_documents(quotes: Sequence[Quote]) -> list[dict[str, Any]]:
    return [
        {
            "quantile": quote.quantile,
            "replicas": None if quote.pool is None else quote.pool.replicas,
            "dollars_per_hour": None if quote.dollars_per_hour is None else float(quote.dollars_per_hour),
            "limit": None if quote.pool is None else quote.pool.limit,
            "nearest": None if quote.nearest is None else _nearest(quote.nearest),
        }
        for quote in quotes
    ]


def _nearest(pool: Any) -> dict[str, Any]:
    return {"replicas": pool.replicas, "promise": promise_text(pool.promise)}
