"""`kubectl paceline usage`: what a cluster's tenants used in a month, from the statuses of their objects."""

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.local.usage import Form, Month, OneTenant, Written, checked_month, exported
from paceline_cli.kube.session import SYSTEM, Context, Kubeconfig, System, expect_namespace, place, run
from paceline_core.errors import NotFound
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest

app = command_app()


@app.command(help="Print what each tenant used in a month; only this month and the last are kept.")
def usage(  # noqa: PLR0913, PLR0917 - one argument an option
    month: Month = "",
    form: Written = Form.CSV,
    tenant: OneTenant = "",
    system: System = SYSTEM,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    where, chosen = place(kubeconfig, context, "", system), checked_month(month)
    tenants, note = run(where, lambda api: _tenants(api, where.system))
    if note:
        typer.echo(note, err=True)
    typer.echo(exported(tenants, chosen, form, tenant), nl=False)


async def _tenants(api: KubeClient, namespace: str) -> tuple[list[Manifest], str]:
    """All Tenants, and that there are none. Raises NotFound where paceline is not."""
    try:
        if found := await api.list(RESOURCES["Tenant"], namespace):
            return found, ""
        await expect_namespace(api, namespace)
    except NotFound:
        raise NotFound(f"there is no paceline in namespace {namespace}; choose another --system-namespace") from None
    return [], f"there are no Tenants in {namespace}"
