"""`kubectl paceline top`: services, tenants and workers as a cluster's gateways see them together, live."""

import sys

from paceline_cli.commands import command_app
from paceline_cli.commands.local.state import AsJson
from paceline_cli.kube.services import looks, named
from paceline_cli.kube.services import service as found
from paceline_cli.kube.session import SYSTEM, Context, Kubeconfig, KubeTarget, Namespace, System, place, run
from paceline_cli.ui.gateway_poll import Reading
from paceline_cli.ui.refresh import INTERVAL_S, Interval, Once, OneService, RefreshInterval, show, until_interrupted
from paceline_cli.ui.top_outputs import TopOutput, top_output
from paceline_core.clock import SystemClock
from paceline_core.kube.client.client import KubeClient

app = command_app()


@app.command(help="Show services, tenants and workers live, as the gateways report them.")
def top(  # noqa: PLR0913, PLR0917 - one argument for each option
    service: OneService = "",
    once: Once = False,
    interval: Interval = INTERVAL_S,
    as_json: AsJson = False,
    namespace: Namespace = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    where = place(kubeconfig, context, namespace, system)
    output = top_output(as_json=as_json, once=once, terminal=sys.stdout.isatty())
    with until_interrupted(output):
        run(where, lambda api: _watch(api, where, service, RefreshInterval(interval, once), output))


async def _watch(api: KubeClient, where: KubeTarget, service: str, pace: RefreshInterval, output: TopOutput) -> None:
    clock, key = SystemClock(), named(service, where) if service else None
    if key is not None:
        await found(api, key)

    async def read() -> Reading:
        return await looks(api, where.system, "" if key is None else str(key), clock)

    await show(read, pace, output, clock)
