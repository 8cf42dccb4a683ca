"""`paceline what-if`: what another promise or more requests would make of the traffic of a service of the local run."""

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.kube import Output
from paceline_cli.commands.local.state import DEFAULT, State, ask, get, served
from paceline_cli.what_if.command import show
from paceline_cli.what_if.question import LIMIT, SINCE, Class, Name, Question, Rps, Since, Slo, TimeLimit
from paceline_local.rundir import read_record

app = command_app()


@app.command(help="Show what another promise, or more requests, would cost NAME on the traffic that it has had.")
def what_if(  # noqa: PLR0913, PLR0917 - one argument for each option
    name: Name,
    slo: Slo = "",
    rps: Rps = "",
    since: Since = SINCE,
    time_limit: TimeLimit = LIMIT,
    request_class: Class = None,
    output: Output = None,
    state: State = DEFAULT,
) -> None:
    question = Question.of(slo, rps, since, time_limit, request_class)
    run = ask(state, "GET", "/run")
    key = served(run, name)
    manifest = next(d for d in run["services"] if f"{d['metadata']['namespace']}/{d['metadata']['name']}" == key)
    learned = get("autoscaler", f"{read_record(state).autoscaler}/debug/learned?service={key}")
    typer.echo(show(question, manifest, learned, output), nl=False)
