"""The smaller clusters: an API server alone, and fake nodes."""

import pytest
from tests.cluster.harness.parts import wait_until
from tests.cluster.harness.workbench import Workbench

pytestmark = pytest.mark.real


def test_a_namespace_of_the_small_cluster_goes_when_it_is_deleted(apiserver: Workbench) -> None:
    with apiserver.namespace() as name:
        assert apiserver.kubectl.json("get", "namespace", name)["status"]["phase"] == "Active"
    apiserver.kubectl("wait", "--for=delete", f"namespace/{name}", "--timeout=30s")


def test_a_role_is_needed_for_every_verb(apiserver: Workbench) -> None:
    with apiserver.namespace() as name:
        account = f"--as=system:serviceaccount:{name}:default"
        words = ["get", "pods", account, f"--namespace={name}"]
        rights = ["auth", "can-i", "--list", account, f"--namespace={name}"]
        assert "pods " not in apiserver.kubectl(*rights)
        apiserver.kubectl("create", "role", "reader", "--verb=get,list", "--resource=pods", f"--namespace={name}")
        bind = ["create", "rolebinding", "reader", "--role=reader", f"--serviceaccount={name}:default"]
        apiserver.kubectl(*bind, f"--namespace={name}")
        wait_until("the role is in force", lambda: "pods " in apiserver.kubectl(*rights), (), 30)
        assert apiserver.kubectl(*words) == ""


def test_fake_nodes_make_pods_ready(kwok_cluster: Workbench) -> None:
    with kwok_cluster.namespace("privileged") as name:
        kubectl = kwok_cluster.kubectl.within(name)
        kubectl("create", "deployment", "many", "--image=none", "--replicas=50")
        kubectl("wait", "deployment/many", "--for=jsonpath={.status.readyReplicas}=50", "--timeout=60s")
