"""`paceline usage`: what tenants of a local run used in a month, for billing."""

import enum
import re
from collections.abc import Iterable
from typing import Annotated

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.keys import checked, likely
from paceline_cli.commands.local.state import DEFAULT, State, ask
from paceline_cli.ui.tables import as_csv, as_json, usage_rows
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput, NotFound
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.fields import FIXES, MONTH_PATTERN
from paceline_gateway.usage.types import before, month_of


class Form(enum.StrEnum):
    CSV = "csv"
    JSON = "json"


Month = Annotated[str, typer.Option("--month", metavar="YYYY-MM", help="Month in UTC. Default: this month.")]
Written = Annotated[Form, typer.Option("--format", help="Output format.")]
OneTenant = Annotated[str, typer.Option("--tenant", metavar="NAME", help="Tenant to print. Default: all.")]

app = command_app()


@app.command(help="Print what each tenant used in a month; only this month and the last are kept.")
def usage(month: Month = "", form: Written = Form.CSV, tenant: OneTenant = "", state: State = DEFAULT) -> None:
    chosen = checked_month(month)
    typer.echo(exported(ask(state, "GET", "/tenants"), chosen, form, tenant), nl=False)


def checked_month(month: str) -> str:
    """The month asked for, or this one; raises InvalidInput."""
    if month and not re.fullmatch(MONTH_PATTERN, month):
        raise InvalidInput("--month", f"{month!r} is no month ({FIXES[MONTH_PATTERN]})")
    return month or month_of(SystemClock().utc())


def exported(tenants: Iterable[Manifest], month: str, form: Form, tenant: str) -> str:
    """The rows as text; raises NotFound for a tenant that is not there, and for a month without records."""
    rows, this = usage_rows(tenants, month), month_of(SystemClock().utc())
    if month not in {this, before(this)} and not any(row["written"] for row in rows):
        raise NotFound(f"nothing is kept of {month}; only this month and the last are kept, {this} and {before(this)}")
    if tenant:
        names = [row["tenant"] for row in rows]
        rows = [row for row in rows if row["tenant"] == checked(tenant)]
        if not rows:
            raise NotFound(f"there is no Tenant {tenant}{likely(tenant, names)}")
    return as_csv(rows) if form is Form.CSV else as_json(rows)
