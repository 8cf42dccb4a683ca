"""`paceline why`: the autoscaler's last decisions about a service, each with its sentence."""

import json
from typing import Annotated
from urllib.parse import urlencode

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import DEFAULT, AsJson, State, ask, get, served
from paceline_cli.ui.detail import entry_lines
from paceline_local.rundir import read_record

app = command_app()


@app.command(help="Explain the last decisions about SERVICE, oldest first.")
def why(
    service: Annotated[str, typer.Argument(help="Name, or namespace/name.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=512, help="Number of decisions.")] = 10,
    state: State = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Asks the autoscaler of the run in `state`."""
    key = served(ask(state, "GET", "/run"), service)
    query = urlencode({"service": key, "limit": limit})
    entries = get("autoscaler", f"{read_record(state).autoscaler}/debug/decisions?{query}")
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    for entry in reversed(entries):
        typer.echo("\n".join(entry_lines(entry)))
    if not entries:
        typer.echo(f"nothing was decided about {key} yet")
