"""What tenants used in a month, one row each, from the statuses of their objects: the sum over all gateways.

Columns never change their order or meaning; new ones come at the end. A status holds this month and the last one.
"""

import csv
import io
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from paceline_core.kube.cluster import Manifest
from paceline_core.objects.tenant import MonthlyUsage
from paceline_gateway.usage.entries import read_usage
from paceline_gateway.usage.nouns import StoredUsage, UsageEntry

COLUMNS: Final = ("month", "tenant", "requests", "input_tokens", "output_tokens", "dollars", "written")


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


def _entries(tenant: Manifest, month: str) -> tuple[UsageEntry, ...]:
    usage = (tenant.get("status") or {}).get("usage") or {}
    read = read_usage(MonthlyUsage.model_validate(usage, extra="ignore"))
    return tuple(entry for entry in read if entry.month == month)


def _row(name: str, month: str, entries: tuple[UsageEntry, ...]) -> dict[str, Any]:
    used = StoredUsage("", entries).total(month)
    return {
        "month": month,
        "tenant": name,
        "requests": used.requests,
        "input_tokens": used.input_tokens,
        "output_tokens": used.output_tokens,
        "dollars": f"{used.dollars:.6f}",
        "written": max((entry.time for entry in entries), default=""),
    }
