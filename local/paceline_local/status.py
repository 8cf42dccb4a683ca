"""The operator's part of an InferenceService's status, as local mode writes it: pure.

Also the statuses of other kinds, written once at the start: only keys change during a run.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paceline_core.kube.cluster import ObjectKey
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_ROUTE, INFERENCE_SERVICE, TENANT
from paceline_core.objects.resolved import ResolvedService
from paceline_core.objects.workload_status import (
    NO_PROBLEM,
    VALID,
    ConditionValue,
    PoolCounts,
    RunningRevision,
    conditions,
    named,
    progress,
    readiness,
    workload,
)
from paceline_local import NAMESPACE
from paceline_local.apiserver import ObjectStore, key_of
from paceline_operator.plans.other_kinds import plan_profile, plan_route, plan_tenant
from paceline_operator.plans.validation import ModelNameIndex

MANAGER = "paceline-operator"
SHOWN = 3


@dataclass(frozen=True, slots=True)
class ObservedReplicas:
    """A service's replicas by pool, the desired number over all pools, and the reasons of workers that keep ending."""

    pools: Mapping[str, PoolCounts]
    desired: int
    failing: tuple[str, ...] = ()


def status(  # noqa: PLR0913, PLR0917 - the inputs of a status
    service: ResolvedService,
    observed: ObservedReplicas,
    endpoint: str,
    before: Sequence[dict[str, Any]],
    now: str,
    accepted: ConditionValue = VALID,
) -> dict[str, Any]:
    """The status as the operator would write it; `now` is RFC 3339 UTC, `before` the conditions it wrote last."""
    pools = list(observed.pools.values())
    least, most = sum(pool.min for pool in service.pools), sum(pool.max for pool in service.pools)
    model = service.model
    run = RunningRevision(
        service.revision, endpoint, service.emulated, model.served_name, least, most, model=model.source
    )
    problem = NO_PROBLEM
    if observed.failing:
        problem = ConditionValue("True", "BackOff", f"Workers keep ending: {', '.join(observed.failing[:SHOWN])}.")
    ready, desired = sum(counts.ready for counts in pools), observed.desired
    leaving = sum(counts.draining for counts in pools) + max(ready - desired, 0)
    verdicts = {
        "Accepted": accepted,
        "Ready": readiness(ready, desired, problem),
        "Progressing": progress(ready, desired, settled=ready >= desired and not leaving, leaving=leaving),
        "Degraded": problem,
    }
    return {
        "observedGeneration": 1,
        "conditions": conditions(verdicts, before, now),
        "workload": workload(pools, desired, run, verdicts),
    }


def write(store: ObjectStore, time: str) -> Mapping[ObjectKey, ConditionValue]:
    """Write the statuses of tenants, routes and profiles; return for each service whether it has its served name."""
    names = ModelNameIndex()
    for kind in (INFERENCE_SERVICE, INFERENCE_ROUTE):
        for manifest in store.objects.list(kind):
            names.put(manifest)
    services = [key_of(manifest) for manifest in store.objects.list(INFERENCE_SERVICE)]
    served = [str(key) for key in services]
    for kind in (TENANT, INFERENCE_ROUTE, ACCELERATOR_PROFILE):
        for manifest in store.objects.list(kind):
            key = key_of(manifest)
            match kind:
                case "Tenant":
                    status = plan_tenant(manifest, served, NAMESPACE, time)
                case "InferenceRoute":
                    status = plan_route(manifest, served, names.loss((kind, key)), (), time)
                case _:
                    status = plan_profile(manifest, time)
            if status is not None:
                store.objects.patch_status(kind, key, status, MANAGER)
    return {key: named(str(key), names.loss((INFERENCE_SERVICE, key))) for key in services}
