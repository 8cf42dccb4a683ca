"""`paceline keys`: tenants' API keys of local mode. A key's text is shown once, when it is made."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.state import DEFAULT, AsJson, State, ask
from paceline_cli.commands.tenant import TenantName, checked, missing
from paceline_cli.supervisor.keys import KeyFile
from paceline_cli.view.table import table
from paceline_core.clock import SystemClock
from paceline_core.errors import NotFound

app = command_app("Make, list and revoke tenants' API keys.")


@app.command(help="Make a key for a tenant and print it; it is shown this once.")
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
    """Id, tenant, time of making."""
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


@app.command(help="Revoke a key; requests with it are refused from now on; streams that have begun go on.")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")], state: State = DEFAULT
) -> None:
    """Forget the key."""
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
