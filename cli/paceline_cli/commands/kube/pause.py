"""`kubectl paceline pause` and `resume`: an annotation on the service, which GitOps leaves unchanged.

The end of the pause is checked before it is written.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import typer

from paceline_cli.commands import command_app
from paceline_cli.kube.services import SERVICE, named, service
from paceline_cli.kube.session import SYSTEM, Context, Kubeconfig, KubeTarget, Namespace, place, run
from paceline_core.clock import SystemClock, rfc3339
from paceline_core.errors import InvalidInput
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.objects.naming import ANNOTATION_PAUSE_REASON, ANNOTATION_PAUSE_UNTIL
from paceline_core.units import seconds

LONGEST: Final = timedelta(days=30)
REASON_LIMIT: Final = 256


def until(duration: str, moment: str, now: datetime) -> str:
    """The annotation's text, from either a duration or a time with its zone; raises InvalidInput."""
    if bool(duration) == bool(moment):
        raise InvalidInput("--for", "give either --for, like --for 2h, or --until, like --until 2026-01-31T18:00:00Z")
    option = "--for" if duration else "--until"
    end = _end(duration, moment, now)
    if end <= now:
        raise InvalidInput(option, f"{duration or moment!r} is not in the future")
    if end - now > LONGEST:
        raise InvalidInput(option, f"a pause ends within {LONGEST.days} days; set policy fixed for what should stay")
    return rfc3339(end)


def checked_reason(reason: str) -> str:
    """The reason as one line of at most 256 characters; raises InvalidInput."""
    text = " ".join(reason.split())
    if len(text) > REASON_LIMIT:
        raise InvalidInput("--reason", f"has {len(text)} characters; keep it to {REASON_LIMIT}")
    return text


def _end(duration: str, moment: str, now: datetime) -> datetime:
    if duration:
        try:
            return now + timedelta(seconds=seconds(duration))
        except (ValueError, OverflowError):
            raise InvalidInput("--for", f"{duration!r} is not a duration; write it like 30m, 2h or 3d") from None
    try:
        end = datetime.fromisoformat(moment)
    except ValueError:
        raise InvalidInput("--until", f"{moment!r} is no time; write it like 2026-01-31T18:00:00Z") from None
    if end.tzinfo is None:
        raise InvalidInput("--until", f"{moment!r} has no time zone; write {moment}Z for UTC, or {moment}+01:00")
    return end.astimezone(UTC)


MANAGER: Final = "kubectl-paceline"
pause_app = command_app()
resume_app = command_app()

Name = Annotated[str, typer.Argument(help="Name, or namespace/name.")]


@pause_app.command(help="Stop scaling NAME until the given time.")
def pause(  # noqa: PLR0913, PLR0917 - one argument for each option
    name: Name,
    duration: Annotated[str, typer.Option("--for", metavar="TIME", help="How long, e.g. 30m, 2h or 3d.")] = "",
    moment: Annotated[str, typer.Option("--until", metavar="TIME", help="Until when, e.g. 2026-01-31T18:00:00Z.")] = "",
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, shown in the status.")] = "",
    namespace: Namespace = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """The autoscaler still decides and publishes, but writes no replicas."""
    end, text = until(duration, moment, SystemClock().utc()), checked_reason(reason)
    where = place(kubeconfig, context, namespace, SYSTEM)
    key = named(name, where)
    _annotate(where, key, {ANNOTATION_PAUSE_UNTIL: end, ANNOTATION_PAUSE_REASON: text or None})
    typer.echo(f"scaling of {key} is paused until {end}; `kubectl paceline resume {name}` ends it")


@resume_app.command(help="Resume scaling NAME.")
def resume(name: Name, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Remove the annotations, also those written by others."""
    where = place(kubeconfig, context, namespace, SYSTEM)
    key = named(name, where)
    _annotate(where, key, {ANNOTATION_PAUSE_UNTIL: None, ANNOTATION_PAUSE_REASON: None})
    typer.echo(f"{key} is scaled again")


def _annotate(where: KubeTarget, key: ObjectKey, annotations: dict[str, str | None]) -> None:
    async def write(api: KubeClient) -> None:
        found = await service(api, key)
        # with the uid, so that a later object of the same name is never changed
        patch = {"metadata": {"uid": found["metadata"]["uid"], "annotations": annotations}}
        await api.merge(SERVICE, key, patch, manager=MANAGER)

    run(where, write)
