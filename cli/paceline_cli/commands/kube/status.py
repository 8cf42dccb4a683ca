"""`kubectl paceline status`: the columns of `kubectl get pisvc`, or everything about one service."""

from collections.abc import Awaitable
from datetime import datetime
from typing import Annotated, TypeVar

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.kube import Output, written
from paceline_cli.kube.services import absent, holders, named, service, services
from paceline_cli.kube.session import SYSTEM, Context, Kubeconfig, KubeTarget, Namespace, System, place, run
from paceline_cli.ui.detail import detail
from paceline_cli.ui.rows import cells, header
from paceline_cli.ui.screen import table
from paceline_core.clock import SystemClock
from paceline_core.kube.client.client import KubeClient

T = TypeVar("T")
app = command_app()
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name, or namespace/name; default: all.")]


@app.command(help="Show services, or one in detail.")
def status(  # noqa: PLR0913, PLR0917 - one argument an option
    name: Name = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Services of all namespaces.")] = False,
    output: Output = None,
    namespace: Namespace = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    where = place(kubeconfig, context, namespace, system)
    now = SystemClock().utc()
    if name:
        found, notes = run(where, lambda api: _with_notes(api, where, now, service(api, named(name, where))))
        _say(notes)
        typer.echo(written(found, output) if output else "\n".join(detail(found, now)))
        return
    scope = "" if everywhere else where.namespace
    every, notes = run(where, lambda api: _with_notes(api, where, now, services(api, scope)))
    _say(notes if every else [])
    if output:
        typer.echo(written({"services": every}, output))
    elif every:
        typer.echo("\n".join(table(header(), [cells(each, now) for each in every])))
    else:
        scope_name = "this cluster" if everywhere else f"namespace {where.namespace}; try -A"
        typer.echo(f"no services in {scope_name}", err=True)


async def _with_notes(api: KubeClient, where: KubeTarget, now: datetime, work: Awaitable[T]) -> tuple[T, list[str]]:
    found = await work
    return found, absent(await holders(api, where.system), where.system, now)


def _say(notes: list[str]) -> None:
    for note in notes:
        typer.echo(f"note: {note}", err=True)
