"""`kubectl paceline top` on a real cluster: pods that answer as gateways do, asked through the API server's proxy."""

import json
from pathlib import Path

import pytest
from tests.cli.test_top_frame import cls, look, tenant, worker
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.workbench import Workbench
from tests.cluster.plugin_user import Call, as_user, restricted_pod, service
from tests.cluster.served import Document, serving

pytestmark = pytest.mark.real

ADMIN = """
import json, os
from http.server import BaseHTTPRequestHandler, HTTPServer
class Reply(BaseHTTPRequestHandler):
    def do_GET(self):
        page = json.loads(os.environ["TOKEN"]).get(self.path.partition("?")[0])
        self.send_response(200 if page else 404); self.end_headers()
        self.wfile.write(json.dumps(page).encode())
    def log_message(self, *words): pass
HTTPServer(("", 8081), Reply).serve_forever()
"""


def views() -> str:
    """What such a gateway tells, by path."""
    told = look(0, cls(arrivals=3, in_flight=1), workers=[worker()], tenants=[tenant()])
    pages = {"services": told.services, "queues": told.queues, "workers": told.workers, "tenants": told.tenants}
    return json.dumps(
        {"/healthz": "ok"} | {f"/v1/{name}": page.model_dump(mode="json") for name, page in pages.items()}
    )


def gateway(name: str) -> Document:
    labels = {"app.kubernetes.io/name": "paceline-gateway", "app.kubernetes.io/part-of": "paceline"}
    pod = restricted_pod(name, labels, ADMIN, views())
    pod["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/healthz", "port": 8081}, "periodSeconds": 1}
    return pod


def test_every_gateway_is_asked_through_its_pods_proxy_and_all_are_one_picture(cluster: Workbench, run: Call) -> None:
    """On the cluster with a node, where pods run."""
    with serving(cluster), cluster.namespace() as namespace:
        kubectl = cluster.kubectl.within(namespace)
        kubectl.apply(gateway("gw-a"), gateway("gw-b"))
        kubectl("wait", "pod/gw-a", "pod/gw-b", "--for=condition=Ready", "--timeout=60s")
        place = ("--system-namespace", namespace, "--kubeconfig", str(cluster.kubeconfig))
        code, out, err = run("top", "--once", "--interval", "0.2", "--json", *place)
        shown = run("top", "--once", "--interval", "0.2", *place)[1]
    seen = json.loads(out)
    assert (code, err, seen["gateways"], seen["silent"]) == (0, "", ["gw-a", "gw-b"], [])
    assert (seen["classes"][0]["in_flight"], seen["workers"][0]["in_flight"], seen["tenants"][0]["open"]) == (2, 2, 2)
    assert shown.startswith("2 gateways: gw-a, gw-b; over the last ")


def test_who_may_not_ask_a_gateway_is_told_which_right_is_missing_and_of_no_cluster_that_is_down(
    run: Call, apiserver: Workbench, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl.apply(gateway("gw-a"))
    kubectl("patch", "pod", "gw-a", "--subresource=status", "--patch", '{"status": {"phase": "Running"}}')
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    user = as_user(apiserver, namespace, [rule], tmp_path)
    code, out, err = run("top", "--once", "--system-namespace", namespace, "--kubeconfig", user)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert 'cannot get resource "pods/proxy"' in err
    assert "ask the cluster's administrator" in err
    assert "is the cluster of" not in err


def test_who_may_not_list_pods_is_told_which_right_is_missing(
    run: Call, apiserver: Workbench, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl.apply(service())
    rule = {"apiGroups": ["paceline.dev"], "resources": ["inferenceservices"], "verbs": ["get", "list"]}
    user = as_user(apiserver, namespace, [rule], tmp_path)
    code, out, err = run("top", "--once", "--system-namespace", namespace, "--kubeconfig", user)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert 'cannot list resource "pods"' in err
    assert "ask the cluster's administrator" in err
