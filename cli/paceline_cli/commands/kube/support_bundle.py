"""`kubectl paceline support-bundle`: objects, Events, logs and metrics for support, without secrets, as one file."""

from pathlib import Path
from typing import Annotated, Any

import typer

from paceline_cli.commands import command_app
from paceline_cli.kube.bundle.collect import Archive, Collector, Scope
from paceline_cli.kube.services import services
from paceline_cli.kube.session import SYSTEM, Context, Kubeconfig, KubeTarget, System, place, run
from paceline_core import __version__
from paceline_core.clock import Clock, SystemClock, rfc3339
from paceline_core.errors import Forbidden, InvalidInput
from paceline_core.kube.client.client import KubeClient
from paceline_core.units import counted

app = command_app()


@app.command(
    "support-bundle", help="Collect objects, Events, logs and metrics for support; no Secrets, keys, prompts or values."
)
def support_bundle(  # noqa: PLR0913, PLR0917 - one argument an option
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Archive to write (.tar.gz).")
    ] = None,
    within: Annotated[float, typer.Option("--within", min=1, max=600, metavar="SECONDS", help="Time limit.")] = 60,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NS", help="Namespace to collect. Default: all.")
    ] = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """What cannot be read is named in the bundle's index.json and makes nothing fail."""
    clock = SystemClock()
    made = clock.utc()
    file = output or Path(f"paceline-support-bundle-{made:%Y%m%d-%H%M%S}.tar.gz")
    if file.exists():
        raise InvalidInput("--output", f"{file} is there already; name another file")
    where = place(kubeconfig, context, namespace, system)
    archive = Archive({"paceline": __version__, "made": rfc3339(made)}, made)
    run(where, lambda api: _collected(api, archive, clock, where, namespace, within))
    archive.write(file)
    gaps = f"; {counted(archive.gaps, 'piece is', 'pieces are')} missing, index.json says why" if archive.gaps else ""
    typer.echo(f"{file}{gaps}")


async def _collected(  # noqa: PLR0913, PLR0917
    api: KubeClient, archive: Archive, clock: Clock, where: KubeTarget, namespace: str, within: float
) -> Any:
    """A first call proves that there is a cluster with paceline on it: an empty bundle is no help."""
    chosen = namespace
    try:
        await services(api, chosen)
    except Forbidden:
        chosen = where.namespace
    scope = Scope((chosen,), where.system, within)
    await Collector(api, archive, clock, scope).collect()
