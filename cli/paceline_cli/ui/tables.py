"""A frame as tables: the columns, and the rows that need attention. Pure; `top_outputs` draws them.

Usage rows come from the Tenants' statuses, summed over all gateways; a status holds this month and the last one. Their
columns never change order or meaning; new ones come at the end.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from paceline_cli.ui.top_rows import ClassRow, Frame, TenantRow, Time, Use, WorkerRow
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.tenant import MonthlyUsage
from paceline_core.units import brief, counted
from paceline_gateway.usage.types import StoredUsage, UsageEntry, read_usage

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


MOST: Final = 40
"""Rows of one table; programs get all."""
NEAR_LIMIT: Final = 0.9
"""A limit that is used so far needs attention."""
NONE: Final = "-"


@dataclass(frozen=True, slots=True)
class Row:
    """One line; `bad` asks for attention."""

    cells: tuple[str, ...]
    bad: bool = False


@dataclass(frozen=True, slots=True)
class Section:
    header: tuple[str, ...]
    rows: tuple[Row, ...]
    more: int = 0


def sections(frame: Frame) -> Iterator[Section]:
    """Services, then tenants and workers, as far as there are any."""
    classes = [_class(row) for row in frame.classes]
    yield _section(("SERVICE", "CLASS", "REQ/S", "TOK/S", "RUN", "QUEUE", "HELD", "ELDEST", "TTFT", "TPOT"), classes)
    if frame.tenants:
        header = ("TENANT", "OPEN", "QUEUE", "REQ/MIN", "IN/MIN", "OUT/MIN", "AT ONCE", "MONTH TOKENS", "MONTH $")
        yield _section(header, [_tenant(row) for row in frame.tenants])
    if frame.workers:
        header = ("SERVICE", "WORKER", "STATE", "SLOTS", "QUEUED TOK", "KV", "CIRCUIT", "PICK/S", "HEARD")
        yield _section(header, [_worker(row) for row in frame.workers])


def head(frame: Frame) -> Iterator[Row]:
    """Who was asked, over what time, and who did not answer."""
    asked = f"{counted(len(frame.gateways), 'gateway')}: {', '.join(frame.gateways)}" if frame.gateways else ""
    yield Row((f"{asked or 'no gateway answers'}; over the last {brief(round(frame.window_s, 1))}",), not asked)
    for silent in frame.silent:
        yield Row((f"{silent.gateway} does not answer: {silent.reason}",), bad=True)
    if frame.truncated:
        yield Row(("there is more than is asked for; narrow it with --service",))


def _section(header: tuple[str, ...], rows: Sequence[Row]) -> Section:
    return Section(header, tuple(rows[:MOST]), max(len(rows) - MOST, 0))


def _class(row: ClassRow) -> Row:
    cells = (
        row.service,
        row.name,
        f"{row.requests:.1f}",
        f"{row.tokens:.0f}",
        str(row.in_flight),
        str(row.queued),
        str(row.held),
        brief(round(row.oldest_wait_s, 1)) if row.queued else NONE,
        _time(row.ttft),
        _time(row.tpot),
    )
    return Row(cells, bad=row.ttft.broken or row.tpot.broken or row.held > 0)


def _time(time: Time) -> str:
    """`p95 412ms/500ms`: observed of promised."""
    observed = NONE if time.observed is None else brief(time.observed)
    promised = "" if time.promised is None else f"/{brief(time.promised)}"
    return f"p{round(time.quantile * 100)} {observed}{promised}"


def _tenant(row: TenantRow) -> Row:
    uses = (row.requests, row.input_tokens, row.output_tokens, row.concurrency)
    dollars = f"{row.month_dollars.used or 0:.2f}"
    if row.month_dollars.limit is not None:
        dollars += f"/{row.month_dollars.limit:g}"
    cells = (row.tenant, str(row.open), str(row.queued), *map(_use, uses), _use(row.month_tokens, bare=True), dollars)
    return Row(cells, bad=row.tightest >= NEAR_LIMIT)


def _use(use: Use, *, bare: bool = False) -> str:
    """`12/60`; nothing where there is no limit, unless the bare number says something."""
    if use.limit is None:
        return short(use.used) if bare and use.used is not None else NONE
    return f"{'?' if use.used is None else short(use.used)}/{short(use.limit)}"


def short(number: float) -> str:
    """`950`, `12k`, `3.4M`."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= 10 * size or (number >= size and unit != "k"):
            return f"{number / size:.1f}".removesuffix(".0") + unit
    return f"{number:.0f}"


def _worker(row: WorkerRow) -> Row:
    cells = (
        row.service,
        row.worker,
        row.state,
        f"{row.in_flight}/{NONE if row.slots is None else row.slots}",
        short(row.backlog_tokens),
        f"{row.kv:.0%}",
        row.circuit,
        f"{row.picks:.1f}",
        NONE if row.heard_s_ago is None else brief(round(row.heard_s_ago, 1)),
    )
    return Row(cells, bad=row.state not in {"ready", "starting", "draining"} or row.circuit != "closed")
