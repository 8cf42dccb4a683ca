"""Statuses that the operator would write, written once at the start: only keys change during a run."""

from collections.abc import Mapping

from paceline_cli.supervisor.site import NAMESPACE
from paceline_cli.supervisor.store import ObjectStore, key_of
from paceline_cli.supervisor.workload import MANAGER
from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_core.workload import ConditionValue, Status, named
from paceline_operator.plans import ModelNameIndex, plan_profile, plan_route, plan_tenant


def write(store: ObjectStore, time: str) -> Mapping[ObjectKey, ConditionValue]:
    """Write the statuses of tenants, routes and profiles; return for each service whether it has its served name."""
    names = ModelNameIndex()
    for kind in (INFERENCE_SERVICE, INFERENCE_ROUTE):
        for manifest in store.objects.list(kind):
            names.put(manifest)
    services = [key_of(manifest) for manifest in store.objects.list(INFERENCE_SERVICE)]
    for kind in (TENANT, INFERENCE_ROUTE, ACCELERATOR_PROFILE):
        for manifest in store.objects.list(kind):
            if (status := _status(manifest, [str(key) for key in services], names, time)) is not None:
                store.objects.patch_status(kind, key_of(manifest), status, MANAGER)
    return {key: named(str(key), names.loss((INFERENCE_SERVICE, key))) for key in services}


def _status(manifest: Manifest, services: list[str], names: ModelNameIndex, time: str) -> Status | None:
    match manifest["kind"]:
        case "Tenant":
            return plan_tenant(manifest, services, NAMESPACE, time)
        case "InferenceRoute":
            return plan_route(manifest, services, names.loss((INFERENCE_ROUTE, key_of(manifest))), (), time)
    return plan_profile(manifest, time)
