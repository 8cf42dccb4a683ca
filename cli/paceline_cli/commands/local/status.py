"""`paceline status`: the services of a local run, once."""

import json
from typing import Annotated, Any

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import DEFAULT, AsJson, State, ask, served
from paceline_cli.ui.rows import row
from paceline_cli.ui.screen import legend, line

app = command_app()


@app.command(help="Show the services of the local run, or one of them.")
def status(
    service: Annotated[str, typer.Argument(metavar="NAME", help="Name, or namespace/name. Default: all.")] = "",
    state: State = DEFAULT,
    as_json: AsJson = False,
) -> None:
    """One line a service and a worker, or everything as JSON."""
    run = ask(state, "GET", "/run")
    if service:
        run = _narrowed(run, served(run, service))
    if as_json:
        typer.echo(json.dumps(run, indent=1))
        return
    typer.echo(f"endpoint  {run['endpoint']}  metrics: {run['source']}")
    if run["stopping"]:
        typer.echo("stopping: open streams are finished first")
    typer.echo(f"logs  {run['logs']}")
    for name, word in run["parts"].items():
        typer.echo(f"{name}  {word}  {run['metrics'][name]}")
    rows = [row(document) for document in run["services"]]
    for shown in rows:
        typer.echo(line(shown))
        for worker in (worker for worker in run["workers"] if worker["service"] == shown.name):
            typer.echo(f"  {worker['name']}  {worker['state']}  {worker['metrics']}")
    if explained := legend(rows):
        typer.echo(explained)


def _narrowed(run: dict[str, Any], key: str) -> dict[str, Any]:
    services = [document for document in run["services"] if row(document).name == key]
    return {**run, "services": services, "workers": [one for one in run["workers"] if one["service"] == key]}
