"""`kubectl paceline what-if`: what another promise or more requests would make of a service's traffic, run here.

The simulation runs on this machine; of the cluster only the service and what its autoscaler has learned are read.
"""

from collections.abc import Mapping
from typing import Any

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.kube import Output
from paceline_cli.kube.learned import read_learned
from paceline_cli.kube.services import named, service
from paceline_cli.kube.session import SYSTEM, Context, Kubeconfig, Namespace, System, place, run
from paceline_cli.what_if.question import LIMIT, SINCE, Class, Name, Question, Rps, Since, Slo, TimeLimit
from paceline_core.errors import InvalidInput
from paceline_core.kube.client.client import KubeClient

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
    namespace: Namespace = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    try:
        from paceline_cli.what_if.command import show  # noqa: PLC0415 - its packages are not the plugin's
    except ModuleNotFoundError as error:
        fix = "in a clone of paceline, pip install '.[local,kubernetes]'"
        raise InvalidInput("what-if", f"simulates here, and needs the package {error.name}: {fix}") from None
    question = Question.of(slo, rps, since, time_limit, request_class)
    where = place(kubeconfig, context, namespace, system)
    key = named(name, where)

    async def read(api: KubeClient) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        return await service(api, key), await read_learned(api, where.system, key)

    manifest, learned = run(where, read)
    typer.echo(show(question, manifest, learned, output), nl=False)
