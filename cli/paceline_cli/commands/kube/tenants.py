"""`kubectl paceline keys` and `usage`: tenants' API keys as Secrets in their own namespace, and tenants' usage.

A key's text is shown once. Usage comes from the statuses of the Tenants.
"""

from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from paceline_cli.commands import command_app
from paceline_cli.commands.kube import Output, written
from paceline_cli.commands.kube.pause import MANAGER
from paceline_cli.commands.local.tenants import (
    Form,
    Month,
    OneTenant,
    TenantName,
    Written,
    checked_month,
    checked_tenant,
    exported,
    missing,
)
from paceline_cli.kube.session import SYSTEM, Context, Keys, Kubeconfig, System, expect_namespace, place, run
from paceline_cli.ui.rows import table
from paceline_core.auth import new_key
from paceline_core.auth.api_keys import TENANT_LABEL
from paceline_core.errors import Forbidden, NotFound, PacelineError
from paceline_core.kube import ObjectKey
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest

SECRET: Final = RESOURCES["Secret"]
TENANT: Final = RESOURCES["Tenant"]
PREFIX: Final = "paceline-key-"

keys_app = command_app("Make, list and revoke tenants' API keys.")


@keys_app.command(help="Make a key for a tenant and print it; it is shown only once.")
def create(  # noqa: PLR0913, PLR0917 - one argument for each option
    tenant: TenantName,
    output: Output = None,
    system: System = SYSTEM,
    key_namespace: Keys = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """The key's text goes only to standard output; the cluster keeps a salted hash."""
    record, text = new_key(checked_tenant(tenant))
    where = place(kubeconfig, context, "", system)
    manifest = record.manifest(where.keys(key_namespace))
    run(where, lambda api: _created(api, where.system, tenant, manifest))
    typer.echo(written({"key": text, "id": record.key_id, "tenant": tenant}, output) if output else text)


@keys_app.command(name="list", help="List keys by id; secrets are not stored.")
def list_keys(
    output: Output = None,
    system: System = SYSTEM,
    key_namespace: Keys = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    where = place(kubeconfig, context, "", system)
    namespace = where.keys(key_namespace)
    found, note = run(where, lambda api: _listed(api, namespace, where.system))
    rows = [_row(secret) for secret in found]
    if output:
        typer.echo(written({"keys": rows}, output))
        return
    if note:
        typer.echo(note, err=True)
        return
    typer.echo("\n".join(table(("ID", "TENANT", "CREATED"), [tuple(row.values()) for row in rows])))


@keys_app.command(help="Revoke a key; gateways refuse it once they observe the change.")
def revoke(
    identity: Annotated[str, typer.Argument(metavar="ID", help="Id of the key, from `list`.")],
    system: System = SYSTEM,
    key_namespace: Keys = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    where = place(kubeconfig, context, "", system)
    namespace = where.keys(key_namespace)
    row = run(where, lambda api: _revoked(api, namespace, identity))
    typer.echo(f"{row['id']} of {row['tenant']} is revoked")


async def _created(api: KubeClient, system: str, tenant: str, manifest: Manifest) -> None:
    namespace = manifest["metadata"]["namespace"]
    key = ObjectKey(system, tenant)
    try:
        with suppress(Forbidden):  # keys may be made without permission to read Tenants
            await api.get(TENANT, key)
    except NotFound:
        raise await _unknown(api, key, namespace) from None
    try:
        await api.create(SECRET, namespace, manifest, MANAGER)
    except NotFound:
        raise _nowhere(namespace) from None


async def _unknown(api: KubeClient, tenant: ObjectKey, namespace: str) -> NotFound:
    """The error with the existing Tenants; or, more useful, that the keys' namespace is missing."""
    try:
        await expect_namespace(api, namespace)
    except NotFound:
        return _nowhere(namespace)
    there = None
    with suppress(Forbidden):
        there = sorted(found["metadata"]["name"] for found in await api.list(TENANT, tenant.namespace))
    return missing(tenant.name, tenant.namespace, there, "apply it first, since a key without its Tenant opens nothing")


async def _keys(api: KubeClient, namespace: str) -> list[Manifest]:
    found = await api.list(SECRET, namespace, selector=TENANT_LABEL)
    keys = [secret for secret in found if secret["metadata"]["name"].startswith(PREFIX)]
    return sorted(keys, key=lambda secret: str(secret["metadata"]["creationTimestamp"]))


async def _listed(api: KubeClient, namespace: str, system: str) -> tuple[list[Manifest], str]:
    """All keys; if there are none, what else is missing. Raises NotFound if the namespace is missing."""
    keys = await _keys(api, namespace)
    if keys:
        return keys, ""
    try:
        await expect_namespace(api, namespace)
        tenants = await api.list(TENANT, system)
    except NotFound:
        raise _nowhere(namespace) from None
    except PacelineError:
        return [], f"there are no keys in {namespace}"
    return [], f"there are no keys in {namespace}" + ("" if tenants else f", nor any Tenants in {system}")


async def _revoked(api: KubeClient, namespace: str, identity: str) -> dict[str, Any]:
    for secret in await _keys(api, namespace):
        row = _row(secret)
        if row["id"] == identity:
            await api.delete(SECRET, ObjectKey(namespace, secret["metadata"]["name"]), secret["metadata"]["uid"])
            return row
    raise NotFound(f"there is no key {identity!r} in {namespace}; `kubectl paceline keys list` shows them")


def _nowhere(namespace: str) -> NotFound:
    return NotFound(
        f"there is no namespace {namespace} for keys; choose another --system-namespace, or the --key-namespace that "
        "the install was given (tenantKeys.namespace)"
    )


def _row(secret: Manifest) -> dict[str, Any]:
    metadata = secret["metadata"]
    return {
        "id": metadata["name"].removeprefix(PREFIX),
        "tenant": metadata["labels"][TENANT_LABEL],
        "created": metadata["creationTimestamp"],
    }


usage_app = command_app()


@usage_app.command(help="Print what each tenant used in a month; only this month and the last are kept.")
def usage(  # noqa: PLR0913, PLR0917 - one argument for each option
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
    """All Tenants, and a message if there are none. Raises NotFound if paceline is not installed."""
    try:
        if found := await api.list(TENANT, namespace):
            return found, ""
        await expect_namespace(api, namespace)
    except NotFound:
        raise NotFound(f"there is no paceline in namespace {namespace}; choose another --system-namespace") from None
    return [], f"there are no Tenants in {namespace}"
