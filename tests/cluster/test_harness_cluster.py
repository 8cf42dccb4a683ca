"""The harness's promises on the full cluster: our tree runs there, restricted, reached by name; writes are counted."""

import json
import os
import signal
from typing import Any

import httpx
import pytest
from tests.cluster.harness.audit import service_account
from tests.cluster.harness.commands import CommandFailed, Kubectl
from tests.cluster.harness.images import PACELINE_IMAGE, USER
from tests.cluster.harness.machine import Machine
from tests.cluster.harness.tools import folder
from tests.cluster.harness.workbench import Workbench

pytestmark = pytest.mark.real

SERVE = """
import os, paceline_core, paceline_workers
from http.server import BaseHTTPRequestHandler, HTTPServer
class Reply(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
        self.wfile.write(f"{os.getuid()} {paceline_workers.__file__}".encode())
HTTPServer(("", 8000), Reply).serve_forever()
"""


# The Service's rules follow the pod's readiness a moment later.
ASK = """
import sys, time, urllib.error, urllib.request
for attempt in range(100):
    try:
        print(urllib.request.urlopen(sys.argv[1], timeout=10).read().decode())
        break
    except urllib.error.URLError as problem:
        last = problem
        time.sleep(0.1)
else:
    sys.exit(f"{sys.argv[1]}: {last}")
"""


def pod(name: str, program: str) -> dict[str, Any]:
    """A pod that the restricted level accepts."""
    container = {
        "name": "main",
        "image": PACELINE_IMAGE,
        "command": ["python", "-c", program],
        "readinessProbe": {"httpGet": {"path": "/", "port": 8000}, "periodSeconds": 1},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    security = {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 1},
    }


def service(name: str, app: str) -> dict[str, Any]:
    """A Service with a ClusterIP."""
    spec = {"selector": {"app": app}, "ports": [{"port": 80, "targetPort": 8000}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def test_a_restricted_pod_runs_this_tree_and_is_reached_by_its_name(
    cluster: Workbench, namespace: str, kubectl: Kubectl
) -> None:
    kubectl.apply(pod("web", SERVE), service("front", "web"))
    kubectl("wait", "pod/web", "--for=condition=Ready", "--timeout=60s")
    asked = kubectl("exec", "web", "--", "python", "-c", ASK, f"http://front.{namespace}.svc/").strip()
    outside = httpx.get(cluster.service(namespace, "front", 80), timeout=10, trust_env=False).text
    assert asked == outside == f"{USER} /opt/paceline/src/workers/paceline_workers/__init__.py"


def test_a_process_of_a_pod_can_be_killed_and_the_kubelet_starts_it_again(
    cluster: Workbench, machine: Machine, namespace: str, kubectl: Kubectl
) -> None:
    kubectl.apply(pod("mortal", SERVE))
    kubectl("wait", "pod/mortal", "--for=condition=Ready", "--timeout=60s")
    [process] = cluster.processes(namespace, "mortal")
    os.kill(process, signal.SIGKILL)
    restarted = "--for=jsonpath={.status.containerStatuses[0].restartCount}=1"
    kubectl("wait", "pod/mortal", restarted, "--timeout=60s")
    last = kubectl.json("get", "pod", "mortal")["status"]["containerStatuses"][0]["lastState"]
    assert last["terminated"]["exitCode"] == 128 + signal.SIGKILL


@pytest.mark.parametrize("tool", ["helm", "helm3"])
def test_helm_reaches_the_cluster_and_tells_the_version_that_was_built(cluster: Workbench, tool: str) -> None:
    helm = cluster.helm(tool)
    assert helm("list", "--all-namespaces", "--output=json").strip() == "[]"
    assert helm("version", "--template={{.Version}}").strip() == folder(tool).name.removeprefix(f"{tool}-")


def test_a_pod_that_may_become_root_is_refused(kubectl: Kubectl) -> None:
    loose = pod("loose", SERVE)
    loose["spec"]["securityContext"] = {}
    with pytest.raises(CommandFailed, match='violates PodSecurity "restricted'):
        kubectl.apply(loose)


def test_a_network_policy_is_stored(kubectl: Kubectl) -> None:
    kubectl.apply(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "closed"},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        }
    )
    assert kubectl.json("get", "networkpolicy", "closed")["spec"]["policyTypes"] == ["Ingress"]


def test_the_audit_log_counts_a_write_and_a_refused_one_by_user(
    cluster: Workbench, machine: Machine, namespace: str, kubectl: Kubectl
) -> None:
    mark = cluster.audit.mark()
    kubectl("create", "serviceaccount", "nobody")
    user = service_account(namespace, "nobody")
    headers = {"authorization": "Bearer " + kubectl("create", "token", "nobody").strip()}
    with machine.api() as api:
        path = f"/api/v1/namespaces/{namespace}/configmaps"
        body = json.dumps({"metadata": {"name": "mine"}})
        refused = api.post(path, content=body, headers={**headers, "content-type": "application/json"})
    [write] = cluster.audit.writes(mark, user=user)
    assert (refused.status_code, write.code, write.verb, write.resource) == (403, 403, "create", "configmaps")
    made = [each for each in cluster.audit.writes(mark, user="harness") if each.namespace == namespace]
    assert [(each.verb, each.resource, each.subresource) for each in made] == [
        ("create", "serviceaccounts", ""),
        ("create", "serviceaccounts", "token"),
    ]


def test_the_api_server_can_be_killed_and_comes_back_with_what_it_held(machine: Machine, kubectl: Kubectl) -> None:
    kubectl("create", "configmap", "kept", "--from-literal=a=b")
    machine.parts["kube-apiserver"].kill()
    with pytest.raises(CommandFailed):
        kubectl("get", "configmap", "kept", "--request-timeout=1s")
    machine.parts["kube-apiserver"].start()
    machine.await_api()
    assert kubectl.json("get", "configmap", "kept")["data"] == {"a": "b"}


def test_a_node_can_be_given_gpus(machine: Machine, cluster: Workbench) -> None:
    machine.give_gpus(3)
    [node] = cluster.kubectl.json("get", "nodes")["items"]
    assert node["status"]["capacity"]["nvidia.com/gpu"] == "3"
