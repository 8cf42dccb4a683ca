"""`paceline keys`: tenants' API keys of local mode. A key's text is shown once, when it is made.

A Tenant's name as an argument: checked the same way whether keys go to a file or to a cluster.
"""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import DEFAULT, AsJson, State, ask
from paceline_cli.ui.screen import table
from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput, NotFound
from paceline_core.objects.field_errors import did_you_mean
from paceline_core.objects.fields import FIXES, LABEL_PATTERN
from paceline_local.keys import KeyFile

TenantName = Annotated[str, typer.Argument(help="Name of the Tenant.")]


def checked(tenant: str) -> str:
    """The name itself, if a Tenant may have it; raises InvalidInput."""
    if not re.fullmatch(LABEL_PATTERN, tenant) or len(tenant) > 63:
        raise InvalidInput("tenant", f"{tenant!r} is not a Tenant's name ({FIXES[LABEL_PATTERN]})")
    return tenant


def missing(tenant: str, place: str, there: Sequence[str] | None, fix: str) -> NotFound:
    """That a Tenant is not at a place, with the likely name among those there, or all; None: they are not known."""
    others = "" if there is None else likely(tenant, there)
    return NotFound(f"there is no Tenant {tenant} in {place}{others}; {fix}")


def likely(tenant: str, there: Sequence[str]) -> str:
    """`; did you mean local?`, or the Tenants that there are."""
    return did_you_mean(tenant, there) or (f"; the Tenants are {', '.join(there[:10])}" if there else ", nor any other")


app = command_app("Make, list and revoke tenants' API keys.")


@app.command(help="Make a key for a tenant and print it; it is shown only once.")
def create(tenant: TenantName, state: State = DEFAULT, as_json: AsJson = False) -> None:
    """The key's text goes to standard output alone. While nothing runs, any tenant may be one of the next run."""
    _expect(state, checked(tenant))
    new = not state.exists()
    record, text = KeyFile(state).create(tenant, SystemClock())
    if new:
        typer.echo(f"note: {state} is a new folder; only a run with this --state takes the key", err=True)
    _refresh(state)
    typer.echo(json.dumps({"key": text, "id": record.key_id, "tenant": tenant}) if as_json else text)


@app.command(name="list", help="List keys by id; secrets are not stored.")
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


@app.command(help="Revoke a key; new requests are refused, open streams finish.")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")], state: State = DEFAULT
) -> None:
    record = KeyFile(state).revoke(identity)
    _refresh(state)
    typer.echo(f"{record.key_id} of {record.tenant} is revoked")


def _expect(state: Path, tenant: str) -> None:
    """Raises NotFound where a run knows its tenants, and this is none of them."""
    try:
        there = ask(state, "GET", "/run")["tenants"]
    except NotFound:
        return
    if tenant not in there:
        raise missing(tenant, "this run", there, "add it to the manifests and start `paceline up` again")


def _refresh(state: Path) -> None:
    with suppress(NotFound):  # nothing runs: the next run reads the file
        ask(state, "POST", "/keys/refresh")
