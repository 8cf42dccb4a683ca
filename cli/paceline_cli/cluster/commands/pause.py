"""`kubectl paceline pause` and `resume`: an annotation on the service, which GitOps leaves alone."""

from typing import Annotated, Final

import typer

from paceline_cli.cluster.pause import checked_reason, until
from paceline_cli.cluster.place import SYSTEM, Context, Kubeconfig, KubeTarget, Namespace, place
from paceline_cli.cluster.services import SERVICE, named, service
from paceline_cli.cluster.session import run
from paceline_cli.commands import command_app
from paceline_core.clock import SystemClock
from paceline_core.kube import ObjectKey
from paceline_core.kube.api.server import KubeClient
from paceline_core.objects.naming import ANNOTATION_PAUSE_REASON, ANNOTATION_PAUSE_UNTIL

MANAGER: Final = "kubectl-paceline"
pause_app = command_app()
resume_app = command_app()

Name = Annotated[str, typer.Argument(help="Name, or namespace/name.")]


@pause_app.command(help="Keep NAME's replicas as they are until a time.")
def pause(  # noqa: PLR0913, PLR0917 - one argument an option
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
    _annotate(where, key, {ANNOTATION_PAUSE_UNTIL: end, ANNOTATION_PAUSE_REASON: said or None})
    typer.echo(f"scaling of {key} is paused until {end}; `kubectl paceline resume {name}` ends it")


@resume_app.command(help="Let NAME be scaled again.")
def resume(name: Name, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Remove the annotations, also those that something else wrote."""
    where = place(kubeconfig, context, namespace, SYSTEM)
    key = named(name, where)
    _annotate(where, key, {ANNOTATION_PAUSE_UNTIL: None, ANNOTATION_PAUSE_REASON: None})
    typer.echo(f"{key} is scaled again")


def _annotate(where: KubeTarget, key: ObjectKey, annotations: dict[str, str | None]) -> None:
    async def write(api: KubeClient) -> None:
        found = await service(api, key)
        # the uid: never a later object of the same name
        patch = {"metadata": {"uid": found["metadata"]["uid"], "annotations": annotations}}
        await api.merge(SERVICE, key, patch, manager=MANAGER)

    run(where, write)
