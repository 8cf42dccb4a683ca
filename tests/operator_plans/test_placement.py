"""What a user writes of a pool's pods: joined with what paceline sets, which stands above it."""

from typing import Any

import pytest
from tests.core.objects.corpus import valid
from tests.operator_plans.plan_factories import POOL, SETTINGS, service
from tests.operator_plans.pod_standard import violations

from paceline_core.launch import unsupported
from paceline_core.objects import InferenceService, read, resolve
from paceline_operator.plans.children import inputs_of, render

WRITTEN: dict[str, Any] = valid()["pod-settings"]["spec"]["pools"][0]


def of(**pool: Any) -> InferenceService:
    return read(InferenceService, service(pools=[{**POOL, **pool}]))


def pod(**pool: Any) -> dict[str, Any]:
    resolved = resolve(of(**pool))
    return render(resolved, resolved.pools[0], SETTINGS, None)


def amounts(**resources: Any) -> dict[str, Any]:
    found: dict[str, Any] = pod(resources=resources)["spec"]["containers"][0]["resources"]
    return found


def test_every_field_of_a_pool_reaches_its_pods_within_the_restricted_standard() -> None:
    resolved = resolve(read(InferenceService, valid()["pod-settings"]))
    template = render(resolved, resolved.pools[0], SETTINGS, None)
    spec, container = template["spec"], template["spec"]["containers"][0]
    assert list(violations(spec)) == []
    assert spec["priorityClassName"] == "serving"
    assert spec["affinity"] == WRITTEN["affinity"]
    assert [one["topologyKey"] for one in spec["topologySpreadConstraints"]] == [
        "topology.kubernetes.io/zone",
        "kubernetes.io/hostname",
    ]
    own = {"paceline.dev/service": "placed", "paceline.dev/pool": "main", "paceline.dev/track": "stable"}
    assert spec["topologySpreadConstraints"][0]["labelSelector"] == {"matchLabels": own}
    assert container["resources"]["requests"] == WRITTEN["resources"]["requests"] | {"nvidia.com/gpu": "1"}
    assert container["resources"]["limits"] == WRITTEN["resources"]["limits"] | {"nvidia.com/gpu": "1"}
    volumes = {volume.pop("name"): volume for volume in map(dict, spec["volumes"])}
    assert volumes["models"] == {"persistentVolumeClaim": {"claimName": "models"}}
    assert volumes["settings"] == {"configMap": {"name": "settings", "optional": True}}
    assert volumes["licence"] == {"secret": {"secretName": "licence", "optional": True}}
    assert volumes["shm"] == {"emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    mounts = {mount["mountPath"]: mount.get("readOnly", False) for mount in container["volumeMounts"]}
    assert (mounts["/models"], mounts["/dev/shm"]) == (True, False)


def test_labels_and_annotations_of_paceline_stand_above_the_users() -> None:
    template = pod(
        podLabels={"team": "search", "paceline.dev/service": "another"},
        podAnnotations={"owner": "me", "paceline.dev/worker": "x"},
    )
    assert template["metadata"]["labels"]["team"] == "search"
    assert template["metadata"]["labels"]["paceline.dev/service"] == "chat"
    assert template["metadata"]["annotations"]["owner"] == "me"
    assert template["metadata"]["annotations"]["paceline.dev/worker"] != "x"


def test_an_amount_that_is_not_written_stays_and_never_keeps_a_pod_from_starting() -> None:
    plain = amounts()
    assert amounts(requests={"cpu": "2"})["requests"] == plain["requests"] | {"cpu": "2"}
    low, high = amounts(limits={"memory": "64Mi"}), amounts(requests={"memory": "900Gi"})
    assert (low["requests"]["memory"], low["limits"]["memory"]) == ("64Mi", "64Mi")
    assert (high["requests"]["memory"], high["limits"]["memory"]) == ("900Gi", "900Gi")


def test_spot_nodes_are_preferred_beside_what_the_user_prefers() -> None:
    affinity = pod(affinity=WRITTEN["affinity"], spot=True)["spec"]["affinity"]
    preferred = affinity["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert preferred[0] == WRITTEN["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
    assert "karpenter.sh/capacity-type" in str(preferred[1:])
    assert affinity["podAntiAffinity"] == WRITTEN["affinity"]["podAntiAffinity"]


@pytest.mark.parametrize(
    "field", ["resources", "affinity", "topologySpreadConstraints", "priorityClassName", "podLabels", "volumes"]
)
def test_a_change_rolls_the_pool_and_is_no_new_revision(field: str) -> None:
    before, after = of(), of(**{field: WRITTEN[field]})
    assert resolve(before).revision == resolve(after).revision
    assert inputs_of(before, resolve(before), 0) != inputs_of(after, resolve(after), 0)


def test_what_kubernetes_would_refuse_later_is_refused_by_name() -> None:
    written = {
        "resources": {"requests": {"memory": "2Gi", "cpu": "2"}, "limits": {"memory": "1Gi", "cpu": "1500m"}},
        "podLabels": {"not a label": "x"},
    }
    problems = {problem.field for problem in unsupported(resolve(of(**written)))}
    assert problems == {
        "spec.pools[0].resources.requests.memory",
        "spec.pools[0].resources.requests.cpu",
        "spec.pools[0].podLabels[not a label]",
    }
