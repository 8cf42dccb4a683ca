"""`kubectl paceline status` and `why`: the columns of `kubectl get pisvc`, or everything about one service; decisions.

The columns are made from the CRD's own rows, so that both always agree.

`why` shows the last decisions about a service from the best source that the user may read. The autoscaler's ledger has
all of them, with what was rejected. Without the right to read it the object's status has the last decision, and Events
have the last changes.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Annotated, Any

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.decisions import Limit, Since, decision_query
from paceline_cli.commands.kube import Output, written
from paceline_cli.kube.ledger import LedgerAnswer, read_ledger
from paceline_cli.kube.services import absent, holders, named, service, services
from paceline_cli.kube.session import (
    SYSTEM,
    Context,
    Kubeconfig,
    KubeTarget,
    Namespace,
    System,
    place,
    run,
)
from paceline_cli.ui.detail import decision_lines, detail, event_line, event_time, last
from paceline_cli.ui.rows import age, table
from paceline_core.clock import SystemClock
from paceline_core.errors import Forbidden
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest
from paceline_core.objects import InferenceService
from paceline_core.objects.crd import crd

status_app, why_app = command_app(), command_app()
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name, or namespace/name; default: all.")]


@status_app.command(help="Show services, or one in detail.")
def status(  # noqa: PLR0913, PLR0917 - one argument for each option
    name: Name = "",
    everywhere: Annotated[bool, typer.Option("--all-namespaces", "-A", help="Services of all namespaces.")] = False,
    output: Output = None,
    namespace: Namespace = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    where, now = place(kubeconfig, context, namespace, system), SystemClock().utc()

    async def found(api: KubeClient) -> tuple[list[Manifest], list[str]]:
        if name:
            every = [await service(api, named(name, where))]
        else:
            every = await services(api, "" if everywhere else where.namespace)
        return every, absent(await holders(api, where.system), where.system, now)

    every, notes = run(where, found)
    for note in notes if every else ():
        typer.echo(f"note: {note}", err=True)
    if output:
        typer.echo(written(every[0] if name else {"services": every}, output))
    elif name:
        typer.echo("\n".join(detail(every[0], now)))
    elif every:
        typer.echo("\n".join(table(header(), [cells(each, now) for each in every])))
    else:
        scope = "this cluster" if everywhere else f"namespace {where.namespace}; try -A"
        typer.echo(f"no services in {scope}", err=True)


@cache
def header() -> tuple[str, ...]:
    return ("NAMESPACE", "NAME", *(title.upper() for title, _, _ in _columns()))


def cells(document: Mapping[str, Any], now: datetime) -> tuple[str, ...]:
    found = [document["metadata"]["namespace"], document["metadata"]["name"]]
    for _, type_, path in _columns():
        value: Any = document
        for step in path.removeprefix(".").split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        found.append("" if value is None else age(str(value), now) if type_ == "date" else str(value))
    return tuple(found)


@cache
def _columns() -> tuple[tuple[str, str, str], ...]:
    (version,) = crd(InferenceService)["spec"]["versions"]
    shown = (column for column in version["additionalPrinterColumns"] if not column.get("priority"))
    return tuple((column["name"], column["type"], column["jsonPath"]) for column in shown)


@dataclass(frozen=True, slots=True)
class Answer:
    key: ObjectKey
    ledger: LedgerAnswer
    scaling: dict[str, Any]
    events: list[dict[str, Any]] | None


@why_app.command(help="Explain the last decisions about NAME, oldest first.")
def why(  # noqa: PLR0913, PLR0917 - one argument for each option
    name: Annotated[str, typer.Argument(help="Name, or namespace/name.")],
    limit: Limit = None,
    since: Since = "",
    output: Output = None,
    namespace: Namespace = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    where = place(kubeconfig, context, namespace, system)
    key = named(name, where)
    query = decision_query(str(key), limit, since, inputs=output is not None)
    found = run(where, lambda api: _asked(api, where, key, query))
    if output:
        document = {
            "service": str(found.key),
            "source": found.ledger.source,
            "decisions": list(found.ledger.entries),
            "scaling": found.scaling,
            "events": found.events,
        }
        typer.echo(written(document, output))
        return
    typer.echo("\n".join(lines(found, query)))


async def _asked(api: KubeClient, where: KubeTarget, key: ObjectKey, query: Mapping[str, str]) -> Answer:
    manifest = await service(api, key)
    scaling = (manifest.get("status") or {}).get("scaling") or {}
    fields = f"involvedObject.kind=InferenceService,involvedObject.name={key.name}"
    event_rows = None
    with suppress(Forbidden):
        found = await api.list(RESOURCES["Event"], key.namespace, fields=fields)
        event_rows = sorted(found, key=event_time)[-int(query["limit"]) :]
    return Answer(key, await read_ledger(api, where.system, query), scaling, event_rows)


def lines(found: Answer, query: Mapping[str, str]) -> Iterator[str]:
    """The source first, since a status has one decision and a ledger has many."""
    if found.ledger.entries:
        yield f"source: {found.ledger.source}"
        yield from decision_lines(found.ledger.entries, query)
        return
    yield f"source: status and Events, since {found.ledger.source}"
    decisions = list(last(found.scaling))
    yield from (f"status  {line}" for line in decisions)
    yield from (f"event   {event_line(event)}" for event in found.events or ())
    if found.events is None:
        yield f"Events may not be read with these rights: list on events in namespace {found.key.namespace} is missing"
    if not decisions and not found.events:
        yield f"nothing was decided about {found.key} yet"
