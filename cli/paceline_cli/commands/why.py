"""`paceline why`: the autoscaler's last decisions about a service, each with its sentence."""

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.state import DEFAULT, AsJson, State, ask, get
from paceline_cli.supervisor.rundir import read_record
from paceline_core.clock import rfc3339
from paceline_core.errors import NotFound
from paceline_core.units import counted

app = command_app()


@app.command(help="Explain the last decisions about SERVICE, oldest first.")
def why(
    service: Annotated[str, typer.Argument(help="Name, or namespace/name.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=512, help="How many.")] = 10,
    state: State = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """Asks the autoscaler of the run in `state`."""
    key = service if "/" in service else f"default/{service}"
    served = [f"{d['metadata']['namespace']}/{d['metadata']['name']}" for d in ask(state, "GET", "/run")["services"]]
    if key not in served:
        raise NotFound(f"{key} is not served here; the services are {', '.join(served)}")
    query = urlencode({"service": key, "limit": limit})
    entries = get("autoscaler", f"{read_record(state).autoscaler}/debug/decisions?{query}")
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
        return
    for entry in reversed(entries):
        typer.echo("\n".join(told(entry)))
    if not entries:
        typer.echo(f"nothing was decided about {key} yet")


def told(entry: Mapping[str, Any]) -> Iterator[str]:
    """One decision: when, which way, why in one sentence; below it what bound it and what was rejected."""
    decision = entry["decision"]
    moment = rfc3339(datetime.fromtimestamp(entry["observation"]["now"], UTC))
    yield f"{moment}  {decision['direction']:<4}  {decision['reason']}: {decision['sentence']}"
    if decision["limit"] != "none":
        yield f"    bound by {decision['limit']}"
    if decision["gaps"]:
        yield f"    missing: {', '.join(decision['gaps'])}"
    yield from (f"    not {rejected}" for rejected in decision["rejected"])
    if entry["held"]:
        yield f"    before it, {counted(entry['held'], 'pass', 'passes')} decided the same as the one above"
