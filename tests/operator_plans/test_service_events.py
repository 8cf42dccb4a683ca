"""What `kubectl describe` tells of a service."""

from dataclasses import replace
from typing import Any

from tests.every import cases
from tests.operator_plans.plan_factories import POOL, Operator, service

from paceline_core.kube.cluster import Event, ObjectKey
from paceline_operator.plans.children import SHOWN, added_fields
from paceline_operator.plans.inferenceservice import plan_service
from paceline_operator.plans.observe import observe_child

PLACE = ("Deployment", ObjectKey("team", "chat-main"))


def told(events: tuple[Event, ...]) -> list[tuple[str, str]]:
    return [(event.reason, event.message) for event in events]


def scaled(operator: Operator, manifest: dict[str, Any], desired: int, by: str) -> list[tuple[str, str]]:
    """The Events of a pass that sees the Deployment at so many replicas, set by this manager."""
    children = dict(operator.view(manifest).children)
    live = children[PLACE]
    assert live.replicas is not None
    children[PLACE] = replace(live, replicas=replace(live.replicas, desired=desired, scaled_by=by))
    plan = plan_service(operator.view(manifest, children=children))
    operator.memo = plan.memo
    return told(plan.events)


def converged(**spec: Any) -> tuple[Operator, dict[str, Any]]:
    operator, manifest = Operator(), service(**spec)
    operator.converge(manifest)
    return operator, manifest


def test_a_first_creation_is_reported_once_with_all_that_is_made() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    said = [one for _ in range(4) for one in told(operator.step(manifest).events)]
    made = "Created Service chat-workers, PodDisruptionBudget chat-workers, Deployment chat-main."
    assert said == [("Created", made)]


def test_in_a_bulk_start_a_first_creation_is_left_to_the_status() -> None:
    operator, manifest = Operator(), service()
    operator.namespace()
    assert [one for _ in range(4) for one in operator.step(manifest, bulk_starts=40).events] == []


def test_a_scale_that_the_policy_leaves_to_others_is_named_once_with_both_numbers_and_who_did_it() -> None:
    operator, manifest = converged(scaling={"policy": "external"})
    assert scaled(operator, manifest, 5, "kubectl") == [
        (
            "ExternallyScaled",
            "Deployment chat-main was scaled from 1 to 5 by kubectl; policy external leaves it so.",
        )
    ]
    assert scaled(operator, manifest, 5, "kubectl") == []
    assert scaled(operator, manifest, 3, "") == []
    assert scaled(operator, manifest, 6, "kube-controller-manager") == []


def test_a_scale_that_the_autoscaler_follows_is_for_the_autoscaler_to_report() -> None:
    operator, manifest = converged()
    assert scaled(operator, manifest, 5, "kubectl") == []


def test_a_restarted_operator_names_no_scale_that_it_did_not_see() -> None:
    operator, manifest = converged(scaling={"policy": "external"})
    operator.restart()
    assert scaled(operator, manifest, 5, "kubectl") == []


def test_what_others_add_to_a_deployment_is_reported_once_and_kept() -> None:
    operator, manifest = converged()
    children = dict(operator.view(manifest).children)
    fields = "spec.template.spec.containers[sidecar]"
    children[PLACE] = replace(children[PLACE], additions=(("kubectl-edit", fields),))
    said = []
    for _ in range(3):
        plan = plan_service(operator.view(manifest, children=children))
        operator.memo = plan.memo
        assert plan.actions == ()
        said += told(plan.events)
    kept = f"Deployment chat-main has {fields} from kubectl-edit; paceline keeps it."
    assert said == [("ForeignFieldsKept", kept)]


def entry(manager: str, spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"manager": manager, "operation": "Update", "fieldsV1": {"f:spec": spec}, **more}


def inside(**fields: Any) -> dict[str, Any]:
    return {"f:template": {"f:spec": fields}}


WORKER, SIDECAR = 'k:{"name":"worker"}', 'k:{"name":"sidecar"}'
OURS = entry("paceline-operator", inside(**{"f:containers": {WORKER: {".": {}, "f:image": {}}}}))


@cases(
    ("entries", "found"),
    [
        ([OURS], ()),
        ([OURS, entry("kubectl", {"f:replicas": {}}, subresource="scale")], ()),
        ([OURS, entry("kubectl", {"f:replicas": {}})], ()),
        ([OURS, entry("kube-controller-manager", {"f:x": {}})], ()),
        ([OURS, entry("kubectl-edit", inside(**{"f:containers": {WORKER: {"f:image": {}}}}))], ()),
        (
            [OURS, entry("kubectl-edit", inside(**{"f:containers": {SIDECAR: {".": {}, "f:image": {}}}}))],
            (("kubectl-edit", "spec.template.spec.containers[sidecar]"),),
        ),
        (
            [OURS, entry("kubectl-rollout", {"f:template": {"f:metadata": {"f:annotations": {"f:a.b/c": {}}}}})],
            (("kubectl-rollout", "spec.template.metadata"),),
        ),
        (
            [OURS, entry("x", {f"f:field{number}": {} for number in range(SHOWN + 2)})],
            (("x", "spec.field0, spec.field1, spec.field2, spec.field3 and 2 more"),),
        ),
        ([{"manager": "odd"}, {}], ()),
    ],
)
def test_an_addition_is_a_field_below_spec_that_none_of_ours_holds(
    entries: list[dict[str, Any]], found: tuple[tuple[str, str], ...]
) -> None:
    assert added_fields({"managedFields": entries}) == found


def test_a_deployment_is_observed_with_its_additions_and_with_who_scaled_it() -> None:
    operator, _ = converged(pools=[POOL])
    manifest = operator.server.manifest(PLACE)
    manifest["metadata"]["managedFields"] = [
        OURS,
        entry("kubectl", {"f:replicas": {}}, subresource="scale", time="2026-01-01T00:00:01Z"),
        entry("paceline-autoscaler", {"f:replicas": {}}, subresource="scale", time="2026-01-01T00:00:00Z"),
        entry("kubectl-edit", {"f:minReadySeconds": {}}),
    ]
    live = observe_child(manifest)
    assert live.additions == (("kubectl-edit", "spec.minReadySeconds"),)
    assert live.replicas is not None
    assert live.replicas.scaled_by == "kubectl"
