"""`paceline keys` and `paceline usage`: tenants' API keys of local mode, and tenants' monthly usage for billing.

A key's text is shown once, when it is made. A Tenant's name is checked in the same way for a key file and for a
cluster. Usage is read from the Tenants' statuses, which hold this month and the previous one. Its columns never change
order or meaning; new ones are added at the end.
"""

import csv
import enum
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import DEFAULT, AsJson, State, ask
from paceline_cli.ui.rows import table
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput, NotFound
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.field_errors import did_you_mean
from paceline_core.objects.fields import FIXES, LABEL_PATTERN, MONTH_PATTERN
from paceline_core.objects.tenant import MonthlyUsage
from paceline_gateway.usage.types import StoredUsage, before, month_of, read_usage
from paceline_local.keys import KeyFile

TenantName = Annotated[str, typer.Argument(help="Name of the Tenant.")]


def checked_tenant(tenant: str) -> str:
    """The name, if it is valid for a Tenant; raises InvalidInput."""
    if not re.fullmatch(LABEL_PATTERN, tenant) or len(tenant) > 63:
        raise InvalidInput("tenant", f"{tenant!r} is not a Tenant's name ({FIXES[LABEL_PATTERN]})")
    return tenant


def missing(tenant: str, place: str, there: Sequence[str] | None, fix: str) -> NotFound:
    """The error for a missing Tenant, with a similar name among those there, or all; None: they are unknown."""
    others = "" if there is None else likely(tenant, there)
    return NotFound(f"there is no Tenant {tenant} in {place}{others}; {fix}")


def likely(tenant: str, there: Sequence[str]) -> str:
    """`; did you mean local?`, or the existing Tenants."""
    return did_you_mean(tenant, there) or (f"; the Tenants are {', '.join(there[:10])}" if there else ", nor any other")


keys_app = command_app("Make, list and revoke tenants' API keys.")


@keys_app.command(help="Make a key for a tenant and print it; it is shown only once.")
def create(tenant: TenantName, state: State = DEFAULT, as_json: AsJson = False) -> None:
    """The key's text goes only to standard output. While nothing runs, any tenant may be one of the next run."""
    checked_tenant(tenant)
    there = None
    with suppress(NotFound):
        there = ask(state, "GET", "/run")["tenants"]
    if there is not None and tenant not in there:
        raise missing(tenant, "this run", there, "add it to the manifests and start `paceline up` again")
    new = not state.exists()
    record, text = KeyFile(state).create(tenant, SystemClock())
    if new:
        typer.echo(f"note: {state} is a new folder; only a run with this --state takes the key", err=True)
    _refresh(state)
    typer.echo(json.dumps({"key": text, "id": record.key_id, "tenant": tenant}) if as_json else text)


@keys_app.command(name="list", help="List keys by id; secrets are not stored.")
def list_keys(state: State = DEFAULT, as_json: AsJson = False) -> None:
    if not state.exists():
        raise NotFound(f"there is no {state}; `paceline up` makes it, or name another one with --state")
    rows = [
        {"id": key.record.key_id, "tenant": key.record.tenant, "created": key.created} for key in KeyFile(state).all()
    ]
    if as_json:
        typer.echo(json.dumps({"keys": rows}, indent=1))
        return
    if not rows:
        typer.echo(f"there are no keys in {state}", err=True)
        return
    for line in table(("ID", "TENANT", "CREATED"), [(row["id"], row["tenant"], row["created"]) for row in rows]):
        typer.echo(line)


@keys_app.command(help="Revoke a key; new requests are refused, open streams finish.")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")], state: State = DEFAULT
) -> None:
    record = KeyFile(state).revoke(identity)
    _refresh(state)
    typer.echo(f"{record.key_id} of {record.tenant} is revoked")


def _refresh(state: Path) -> None:
    with suppress(NotFound):  # nothing runs: the next run reads the file
        ask(state, "POST", "/keys/refresh")


class Form(enum.StrEnum):
    CSV = "csv"
    JSON = "json"


Month = Annotated[str, typer.Option("--month", metavar="YYYY-MM", help="Month in UTC. Default: this month.")]
Written = Annotated[Form, typer.Option("--format", help="Output format.")]
OneTenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Tenant to print. Default: all.")]

usage_app = command_app()


@usage_app.command(help="Print what each tenant used in a month; only this month and the last are kept.")
def usage(month: Month = "", form: Written = Form.CSV, tenant: OneTenant = "", state: State = DEFAULT) -> None:
    chosen = checked_month(month)
    typer.echo(exported(ask(state, "GET", "/tenants"), chosen, form, tenant), nl=False)


def checked_month(month: str) -> str:
    """The requested month, or the current one; raises InvalidInput."""
    if month and not re.fullmatch(MONTH_PATTERN, month):
        raise InvalidInput("--month", f"{month!r} is no month ({FIXES[MONTH_PATTERN]})")
    return month or month_of(SystemClock().utc())


def exported(tenants: Iterable[Manifest], month: str, form: Form, tenant: str) -> str:
    """The rows as text; raises NotFound for an unknown tenant, and for a month without records."""
    rows, this = usage_rows(tenants, month), month_of(SystemClock().utc())
    if month not in {this, before(this)} and not any(row["written"] for row in rows):
        raise NotFound(f"nothing is kept of {month}; only this month and the last are kept, {this} and {before(this)}")
    if tenant:
        names = [row["tenant"] for row in rows]
        rows = [row for row in rows if row["tenant"] == checked_tenant(tenant)]
        if not rows:
            raise NotFound(f"there is no Tenant {tenant}{likely(tenant, names)}")
    return as_csv(rows) if form is Form.CSV else json.dumps(rows, indent=1) + "\n"


COLUMNS = ("month", "tenant", "requests", "input_tokens", "output_tokens", "dollars", "written")


def usage_rows(tenants: Iterable[Manifest], month: str) -> list[dict[str, Any]]:
    """Rows by tenant's name, summed over all gateways.

    `dollars` is a decimal string; `written` is when a gateway last wrote (RFC 3339), or empty.
    """
    rows = []
    for tenant in tenants:
        status = (tenant.get("status") or {}).get("usage") or {}
        read = read_usage(MonthlyUsage.model_validate(status, extra="ignore"))
        entries = tuple(entry for entry in read if entry.month == month)
        used = StoredUsage("", entries).total(month)
        rows.append(
            {
                "month": month,
                "tenant": tenant["metadata"]["name"],
                "requests": used.requests,
                "input_tokens": used.input_tokens,
                "output_tokens": used.output_tokens,
                "dollars": f"{used.dollars:.6f}",
                "written": max((entry.time for entry in entries), default=""),
            }
        )
    return sorted(rows, key=lambda row: row["tenant"])


def as_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """CSV with a header, as in RFC 4180 except for the line ends."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()
