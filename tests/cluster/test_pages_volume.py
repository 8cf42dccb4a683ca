"""A worker's pod on a real node writes its pages into the volume that a manifest's disk becomes."""

from typing import Any

import httpx
import pytest
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.workbench import Workbench
from tests.operator_plans.plan_factories import SETTINGS, service

from paceline_core.launch import build
from paceline_core.objects import InferenceService, read, resolve
from paceline_operator.plans.marks import ACCOUNT, PORT
from paceline_operator.plans.pod import BINDING, pod_template

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

IMAGE = "localhost/paceline:test"
SPILLING: dict[str, Any] = {
    "engine": {
        "maxSeqs": 1,
        "maxModelLen": 256,
        "kvCache": {"hostOffloadBytes": "512Ki", "diskOffloadBytes": "16Mi"},
    }
}


def pod(name: str) -> dict[str, Any]:
    """The pod of a pool of this service, by itself; without its request, since this node tells no size of its disk."""
    wished = resolve(read(InferenceService, service(**SPILLING)))
    template = pod_template(build(wished, wished.pools[0], "stable", BINDING, IMAGE), wished.pools[0], SETTINGS, {})
    del template["spec"]["containers"][0]["resources"]["requests"]["ephemeral-storage"]
    return {"apiVersion": "v1", "kind": "Pod", **template, "metadata": {**template["metadata"], "name": name}}


def test_a_pod_writes_its_pages_into_its_volume(cluster: Workbench, kubectl: Kubectl, namespace: str) -> None:
    kubectl.apply({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}, pod("spilling"))
    kubectl("wait", "--for=condition=Ready", "pod/spilling", "--timeout=120s", limit_s=130)
    with httpx.Client(base_url=cluster.pod(namespace, "spilling", PORT), timeout=60) as worker:
        for number in range(6):
            prompt = [(place * 7 + number) % 1500 + 1 for place in range(240)]
            asked = {"model": "chat", "prompt": prompt, "max_tokens": 4}
            assert worker.post("/v1/completions", json=asked).status_code == 200
        pages = [line for line in worker.get("/metrics").text.splitlines() if line.startswith("paceline_kv_disk_bytes")]
    assert float(pages[0].split()[-1]) > 0
    written = kubectl("exec", "spilling", "--", "sh", "-c", "grep -c ' /pages ' /proc/mounts; ls /pages/*.kv")
    mounts, *files = written.splitlines()
    assert mounts == "1"
    assert len(files) > 1
