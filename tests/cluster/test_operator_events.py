"""What `kubectl describe` tells of hands that touch a service's Deployment, read from a real server's managedFields."""

from collections.abc import Iterator

import pytest
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, await_true, children, home, service

pytestmark = pytest.mark.real
SIDECAR = '{"spec": {"template": {"spec": {"containers": [{"name": "sidecar", "image": "example/sidecar:1"}]}}}}'
IMAGE = '{"spec": {"template": {"spec": {"containers": [{"name": "worker", "image": "example/theirs:1"}]}}}}'


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("operators")) as made:
        yield made


def test_creation_a_scale_by_hand_a_kept_addition_and_an_undone_edit_are_events(place: Home) -> None:
    with place.bench.namespace() as team, place.operator() as running:
        kubectl = place.bench.kubectl.within(team)

        def told() -> dict[str, str]:
            events = kubectl.json("get", "events", "--field-selector=involvedObject.kind=InferenceService")["items"]
            return {event["reason"]: event["message"] for event in events}

        running.await_ready()
        place.bench.kubectl.apply(service("chat", team, scaling={"policy": "external"}))
        await_true("the Deployment is made", lambda: ("Deployment", "chat-main") in children(place.bench, team))
        await_true("its creation is told", lambda: "Deployment chat-main" in told().get("Created", ""))
        before = kubectl.json("get", "deployment", "chat-main")["spec"]["replicas"]
        kubectl("scale", "deployment/chat-main", "--replicas=4")
        await_true("the scale is told", lambda: "ExternallyScaled" in told())
        assert f"was scaled from {before} to 4 by kubectl" in told()["ExternallyScaled"]
        kubectl("patch", "deployment", "chat-main", "--field-manager=meddler", "--patch", SIDECAR)
        await_true("the addition is told", lambda: "ForeignFieldsKept" in told())
        assert "has spec.template.spec.containers[sidecar] from meddler" in told()["ForeignFieldsKept"]
        kubectl("patch", "deployment", "chat-main", "--field-manager=meddler", "--patch", IMAGE)
        await_true("the edit is told", lambda: "Repaired" in told())
        assert told()["Repaired"] == "Deployment chat-main was changed by meddler; restored."
        found = kubectl.json("get", "deployment", "chat-main")["spec"]
        images = {one["name"]: one["image"] for one in found["template"]["spec"]["containers"]}
        assert images["sidecar"] == "example/sidecar:1"
        assert images["worker"] != "example/theirs:1"
        assert found["replicas"] == 4
