"""`kubectl paceline status`: the columns of `kubectl get pisvc`, or everything about one service."""

from typing import Annotated

import typer

from paceline_cli.cluster.commands import Output, written
from paceline_cli.cluster.place import SYSTEM, Context, Kubeconfig, Namespace, place
from paceline_cli.cluster.services import named, service, services
from paceline_cli.cluster.session import run
from paceline_cli.commands import command_app
from paceline_cli.view.columns import cells, header
from paceline_cli.view.detail import detail
from paceline_cli.view.table import table
from paceline_core.clock import SystemClock

app = command_app()
Name = Annotated[str, typer.Argument(metavar="[NAME]", help="Name, or namespace/name; default: all.")]


@app.command(help="Show services, or everything about one.")
def status(  # noqa: PLR0913, PLR0917 - one argument an option
    name: Name = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Those of every namespace.")] = False,
    output: Output = None,
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """One line a service; conditions, pools and promises of one."""
    where = place(kubeconfig, context, namespace, SYSTEM)
    now = SystemClock().utc()
    if name:
        found = run(where, lambda api: service(api, named(name, where)))
        typer.echo(written(found, output) if output else "\n".join(detail(found, now)))
        return
    every = run(where, lambda api: services(api, "" if everywhere else where.namespace))
    if output:
        typer.echo(written({"services": every}, output))
    elif every:
        typer.echo("\n".join(table(header(), [cells(each, now) for each in every])))
    else:
        place_said = "this cluster" if everywhere else f"namespace {where.namespace}; try -A"
        typer.echo(f"no services in {place_said}", err=True)
