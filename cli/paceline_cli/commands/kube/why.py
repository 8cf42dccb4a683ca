"""`kubectl paceline why`: the last decisions about a service, from the best source that the user may read."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.kube import Output, written
from paceline_cli.kube.decisions import Ledger, events, ledger
from paceline_cli.kube.services import named, service
from paceline_cli.kube.session import run
from paceline_cli.kube.target import SYSTEM, Context, Kubeconfig, KubeTarget, Namespace, System, place
from paceline_cli.ui.detail import entry_lines, event_line, last
from paceline_core.errors import Forbidden
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient

app = command_app()


@dataclass(frozen=True, slots=True)
class Answer:
    """All that is known of why; `events` is None where they may not be read."""

    key: ObjectKey
    ledger: Ledger
    scaling: dict[str, Any]
    events: list[dict[str, Any]] | None


@app.command(help="Explain the last decisions about NAME, oldest first.")
def why(  # noqa: PLR0913, PLR0917 - one argument an option
    name: Annotated[str, typer.Argument(help="Name, or namespace/name.")],
    limit: Annotated[int, typer.Option("--limit", min=1, max=512, help="Number of decisions.")] = 10,
    output: Output = None,
    namespace: Namespace = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """The autoscaler's ledger; without it, status and Events."""
    where = place(kubeconfig, context, namespace, system)
    found = run(where, lambda api: _asked(api, where, named(name, where), limit))
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
    typer.echo("\n".join(lines(found)))


async def _asked(api: KubeClient, where: KubeTarget, key: ObjectKey, limit: int) -> Answer:
    manifest = await service(api, key)
    scaling = (manifest.get("status") or {}).get("scaling") or {}
    try:
        event_rows = await events(api, key, limit)
    except Forbidden:
        event_rows = None
    return Answer(key, await ledger(api, where.system, key, limit), scaling, event_rows)


def lines(found: Answer) -> Iterator[str]:
    """The source first, since a status keeps one decision and a ledger keeps many."""
    if found.ledger.entries:
        yield f"source: {found.ledger.source}"
        for entry in reversed(found.ledger.entries):
            yield from entry_lines(entry)
        return
    yield f"source: status and Events, since {found.ledger.source}"
    decisions = list(last(found.scaling))
    yield from (f"status  {line}" for line in decisions)
    yield from (f"event   {event_line(event)}" for event in found.events or ())
    if found.events is None:
        yield f"Events may not be read with these rights: list on events in namespace {found.key.namespace} is missing"
    if not decisions and not found.events:
        yield f"nothing was decided about {found.key} yet"
