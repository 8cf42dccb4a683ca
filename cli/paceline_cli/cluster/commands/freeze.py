"""`kubectl paceline freeze` and `unfreeze`: an annotation on the service, which GitOps leaves alone."""

from typing import Annotated, Final

import typer

from paceline_cli.cluster.freeze import checked_reason, until
from paceline_cli.cluster.place import SYSTEM, Context, Kubeconfig, Namespace, Place, place
from paceline_cli.cluster.services import SERVICE, named, service
from paceline_cli.cluster.session import run
from paceline_cli.commands import command_app
from paceline_core.clock import SystemClock
from paceline_core.kube import Key
from paceline_core.kube.api.server import ApiServer
from paceline_core.objects.naming import ANNOTATION_FREEZE, ANNOTATION_FREEZE_REASON

MANAGER: Final = "kubectl-paceline"
freeze_app = command_app()
unfreeze_app = command_app()

Name = Annotated[str, typer.Argument(help="Name, or namespace/name.")]


@freeze_app.command(help="Keep NAME's replicas as they are until a time.")
def freeze(  # noqa: PLR0913, PLR0917 - one argument an option
    name: Name,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="Like 30m, 2h or 3d.")] = "",
    moment: Annotated[str, typer.Option("--until", metavar="TIME", help="Like 2026-01-31T18:00:00Z.")] = "",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="For those who wonder why.")] = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """The autoscaler then decides and publishes as ever, and writes no replicas."""
    end, said = until(duration, moment, SystemClock().utc()), checked_reason(reason)
    where = place(kubeconfig, context, namespace, SYSTEM)
    key = named(name, where)
    _annotate(where, key, {ANNOTATION_FREEZE: end, ANNOTATION_FREEZE_REASON: said or None})
    typer.echo(f"{key} is frozen until {end}; `kubectl paceline unfreeze {name}` ends it")


@unfreeze_app.command(help="Let NAME be scaled again.")
def unfreeze(name: Name, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Remove the annotation, whoever wrote it."""
    where = place(kubeconfig, context, namespace, SYSTEM)
    key = named(name, where)
    _annotate(where, key, {ANNOTATION_FREEZE: None, ANNOTATION_FREEZE_REASON: None})
    typer.echo(f"{key} is scaled again")


def _annotate(where: Place, key: Key, annotations: dict[str, str | None]) -> None:
    async def write(api: ApiServer) -> None:
        found = await service(api, key)
        # the uid: never a later object of the same name
        patch = {"metadata": {"uid": found["metadata"]["uid"], "annotations": annotations}}
        await api.merge(SERVICE, key, patch, manager=MANAGER)

    run(where, write)
