"""`paceline status` and `paceline why`: the services of a local run, and the autoscaler's last decisions about one."""

import json
from typing import Annotated
from urllib.parse import urlencode

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.decisions import Limit, Since, decision_query
from paceline_cli.commands.local.state import DEFAULT, AsJson, State, ask, get, served
from paceline_cli.ui.detail import decision_lines
from paceline_cli.ui.rows import legend, line, row
from paceline_local.rundir import read_record

status_app, why_app = command_app(), command_app()


@status_app.command(help="Show the services of the local run, or one of them.")
def status(
    service: Annotated[str, typer.Argument(metavar="NAME", help="Name, or namespace/name. Default: all.")] = "",
    state: State = DEFAULT,
    as_json: AsJson = False,
) -> None:
    run = ask(state, "GET", "/run")
    if service:
        key = served(run, service)
        run["services"] = [document for document in run["services"] if row(document).name == key]
        run["workers"] = [worker for worker in run["workers"] if worker["service"] == key]
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


@why_app.command(help="Explain the last decisions about SERVICE, oldest first.")
def why(
    service: Annotated[str, typer.Argument(help="Name, or namespace/name.")],
    limit: Limit = None,
    since: Since = "",
    state: State = DEFAULT,
    as_json: AsJson = False,
) -> None:
    key = served(ask(state, "GET", "/run"), service)
    query = decision_query(key, limit, since, inputs=as_json)
    entries = get("autoscaler", f"{read_record(state).autoscaler}/debug/decisions?{urlencode(query)}")
    if as_json:
        typer.echo(json.dumps(entries, indent=1))
    elif entries:
        typer.echo("\n".join(decision_lines(entries, query)))
    else:
        typer.echo(f"nothing was decided about {key} {f'since {since}' if since else 'yet'}")
