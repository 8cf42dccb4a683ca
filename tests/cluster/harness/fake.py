"""KWOK: nodes that are objects alone, on which pods become Ready without running; for scale.

KWOK keeps only what carries its annotation, so a real node beside it stays the kubelet's. Beside a real node the
fake ones are tainted, so that a pod goes there only when it says so.
"""

from typing import Any

from tests.cluster.harness.credentials import Credentials
from tests.cluster.harness.space import FAKE_POD_RANGE, NODE_IP
from tests.cluster.harness.tools import folder, program

LABEL = "paceline.dev/test-node=fake"
_ANNOTATION = "kwok.x-k8s.io/node"
_CAPACITY = {"cpu": "10000", "memory": "100Ti", "pods": "10000", "nvidia.com/gpu": "10000"}


def kwok(credentials: Credentials) -> list[str]:
    """The controller that plays the kubelet of every fake node."""
    stages = sorted((folder("kwok") / "stages").glob("*.yaml"))
    return [
        str(program("kwok")),
        f"--kubeconfig={credentials.kubeconfig('kwok')}",
        f"--manage-nodes-with-annotation-selector={_ANNOTATION}=fake",
        f"--cidr={FAKE_POD_RANGE}",
        f"--node-ip={NODE_IP}",
        "--node-lease-duration-seconds=40",
        *(f"--config={stage}" for stage in stages),
    ]


def node(number: int, *, alone: bool) -> dict[str, Any]:
    """One fake node with more room than any test uses."""
    name = f"fake-{number}"
    taints = [] if alone else [{"key": _ANNOTATION, "value": "fake", "effect": "NoSchedule"}]
    key, _, value = LABEL.partition("=")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "annotations": {_ANNOTATION: "fake"},
            "labels": {key: value, "kubernetes.io/hostname": name},
        },
        "spec": {"taints": taints},
        "status": {"capacity": _CAPACITY, "allocatable": _CAPACITY},
    }
