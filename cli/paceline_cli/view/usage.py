"""What tenants used in a month, one row each, from the statuses of their objects: the sum over all gateways.

Columns never change their order or meaning; new ones come at the end. A status holds this month and the last one.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any, Final

from paceline_core.kube.cluster import Manifest

COLUMNS: Final = ("month", "tenant", "requests", "input_tokens", "output_tokens", "dollars", "written")
_COUNTS: Final = {"requests": "requests", "input_tokens": "inputTokens", "output_tokens": "outputTokens"}


def usage_rows(tenants: Iterable[Manifest], month: str) -> list[dict[str, Any]]:
    """Rows by tenant's name. `dollars` is a decimal string, `written` when a gateway last wrote (RFC 3339) or empty."""
    found = {tenant["metadata"]["name"]: _entries(tenant, month) for tenant in tenants}
    return [_row(name, month, found[name]) for name in sorted(found)]


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """With a header, in RFC 4180's form but for line ends."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(rows: Iterable[Mapping[str, Any]]) -> str:
    """A list of objects."""
    return json.dumps(list(rows), indent=1) + "\n"


def _entries(tenant: Manifest, month: str) -> list[Mapping[str, Any]]:
    """Those of this month: `<gateway>@<month>`, or without a month those of the status's own."""
    usage = (tenant.get("status") or {}).get("usage") or {}
    return [
        entry for entry in usage.get("gateways") or () if (entry["id"].partition("@")[2] or usage.get("month")) == month
    ]


def _row(name: str, month: str, entries: list[Mapping[str, Any]]) -> dict[str, Any]:
    counts = {column: sum(entry.get(field, 0) for entry in entries) for column, field in _COUNTS.items()}
    dollars = sum((Decimal(entry.get("dollars") or 0) for entry in entries), Decimal(0))
    written = max((entry.get("time") or "" for entry in entries), default="")
    return {"month": month, "tenant": name, **counts, "dollars": f"{dollars:.6f}", "written": written}
