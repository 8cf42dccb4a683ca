"""`paceline status`: the services of a local run, once."""

import json

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.state import DEFAULT, AsJson, State, ask
from paceline_cli.view.rows import row
from paceline_cli.view.text import legend, line

app = command_app()


@app.command(help="Show the services of the local run.")
def status(state: State = DEFAULT, as_json: AsJson = False) -> None:
    """One line a service and a worker, or everything as JSON."""
    run = ask(state, "GET", "/run")
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
