"""A worker's pod on a real node writes its pages into the volume that a manifest's disk becomes."""

import json
from typing import Any

import httpx
import pytest
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.workbench import Workbench
from tests.operator_plans.plan_factories import SETTINGS, service

from paceline_core.auth import TokenSigner, jwk_set, new_signing_key, public_jwk
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import SystemClock
from paceline_core.launch import build
from paceline_core.objects import InferenceService, read, resolve
from paceline_operator.plans.labels import ACCOUNT, METRICS_PORT, PORT, TRUST, TRUST_FILE
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


def trusting(key: bytes) -> dict[str, Any]:
    """What the operator shares with a namespace's workers: whose tokens they take."""
    data = {TRUST_FILE: json.dumps(jwk_set([public_jwk(key, "gateway")]))}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": TRUST}, "data": data}


def test_a_pod_writes_its_pages_into_its_volume(cluster: Workbench, kubectl: Kubectl, namespace: str) -> None:
    key = new_signing_key()
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": ACCOUNT}}
    kubectl.apply(account, trusting(key), pod("spilling"))
    kubectl("wait", "--for=condition=Ready", "pod/spilling", "--timeout=120s", limit_s=130)
    token = {HEADER: TokenSigner(key, "gateway").token("team/chat", SystemClock().utc())}
    with httpx.Client(base_url=cluster.pod(namespace, "spilling", PORT), headers=token, timeout=60) as worker:
        for number in range(6):
            prompt = [(place * 7 + number) % 1500 + 1 for place in range(240)]
            asked = {"model": "chat", "prompt": prompt, "max_tokens": 4}
            assert worker.post("/v1/completions", json=asked).status_code == 200
    told = httpx.get(f"{cluster.pod(namespace, 'spilling', METRICS_PORT)}/metrics").text
    pages = [line for line in told.splitlines() if line.startswith("paceline_kv_disk_bytes")]
    assert float(pages[0].split()[-1]) > 0
    written = kubectl("exec", "spilling", "--", "sh", "-c", "grep -c ' /pages ' /proc/mounts; ls /pages/*.kv")
    mounts, *files = written.splitlines()
    assert mounts == "1"
    assert len(files) > 1
