"""`kubectl paceline support-bundle` and the ledger's way out of a pod: what is in the file, and what must not be."""

import json
import tarfile
from pathlib import Path

import pytest
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.workbench import Workbench
from tests.cluster.plugin_user import Call, as_user, restricted_pod, service
from tests.cluster.served import Document, serving

pytestmark = pytest.mark.real

CANARIES = {name: f"canary-{name}" for name in ("env", "argument", "annotation", "secret", "log", "metric", "pod")}
ADMIN = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
ENTRY = {"time": "2026-01-31T12:00:00Z", "at": 1769860800.0, "kind": "change", "held": 2, "decision": {
         "direction": "up", "reason": "demand", "sentence": "1 -> 2: demand needs 1.6 replicas.", "limit": "max",
         "gaps": [], "rejected": ["1: too few"]}}
class Reply(BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.path.startswith("/debug/decisions") and "other" not in self.path
        body = json.dumps([ENTRY] if known else []) if "debug" in self.path else "up 1\\n" + os.environ["TOKEN"]
        self.send_response(200); self.end_headers(); self.wfile.write(body.encode())
    def log_message(self, *words): pass
print("started with", os.environ["TOKEN"], flush=True)
print(json.dumps({"message": "served", "prompt": "canary-prompt"}), flush=True)
HTTPServer(("", 8090), Reply).serve_forever()
"""


def held(path: Path) -> dict[str, str]:
    """Every file of a bundle, by its path without the folder."""
    with tarfile.open(path) as tar:
        files = {entry.name.partition("/")[2]: tar.extractfile(entry) for entry in tar.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def test_a_bundle_holds_what_there_is_and_no_canary(
    call: Call, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl.apply(*canaries())
    path = tmp_path / "bundle.tar.gz"
    code, out, _ = call("support-bundle", "-o", str(path))
    files = held(path)
    index = json.loads(files["index.json"])
    assert code == 0
    assert "missing, index.json says why" in out
    assert not [name for name, text in files.items() if "canary" in text]
    assert json.loads(files[f"objects/{namespace}/InferenceService.json"])[0]["metadata"]["name"] == "chat"
    assert json.loads(files[f"objects/{namespace}/Pod.json"])[0]["status"]["phase"] == "Pending"
    assert json.loads(files["versions/kubernetes.json"])["major"] == "1"
    assert "missing" in index["entries"][f"metrics/{namespace}/chat-main-1.txt"]
    assert not [name for name in files if "Secret" in name or "ConfigMap" in name]


def test_a_bundle_with_few_rights_says_what_is_missing(
    run: Call, apiserver: Workbench, namespace: str, tmp_path: Path
) -> None:
    rule = {"apiGroups": ["paceline.dev"], "resources": ["inferenceservices"], "verbs": ["get", "list"]}
    apiserver.kubectl.within(namespace).apply(service())
    user = as_user(apiserver, namespace, [rule], tmp_path)
    path = tmp_path / "bundle.tar.gz"
    assert run("support-bundle", "-o", str(path), "-n", namespace, "--kubeconfig", user)[0] == 0
    files = held(path)
    assert "chat" in files[f"objects/{namespace}/InferenceService.json"]
    assert "forbidden" in json.loads(files["index.json"])["entries"][f"objects/{namespace}/Pod.json"]["missing"]


def test_a_bundle_is_never_written_over_a_file(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("mine")
    code, _, err = call("support-bundle", "-o", str(path))
    assert (code, err) == (2, f"error: --output: {path} is there already; name another file\n")
    assert path.read_text() == "mine"


def test_the_ledger_is_read_through_the_pod_s_proxy_and_its_log_is_cleaned(
    cluster: Workbench, run: Call, tmp_path: Path
) -> None:
    """On the cluster with a node, where pods run: one that answers as the autoscaler does."""
    with serving(cluster), cluster.namespace() as namespace:
        kubectl = cluster.kubectl.within(namespace)
        kubectl.apply(service(), service("other"), autoscaler())
        kubectl("wait", "pod/paceline-autoscaler-1", "--for=condition=Ready", "--timeout=60s")
        place = ("-n", namespace, "--system-namespace", namespace, "--kubeconfig", str(cluster.kubeconfig))
        told = run("why", "chat", *place)[1].splitlines()
        silent = run("why", "other", *place)[1]
        run("support-bundle", "-o", str(tmp_path / "b.tar.gz"), *place)
    assert told == [
        f"source: the ledger of {namespace}/paceline-autoscaler-1",
        "2026-01-31T12:00:00Z  up    demand: 1 -> 2: demand needs 1.6 replicas.",
        "    bound by max",
        "    not 1: too few",
        "    before it, 2 passes decided the same as the one above",
    ]
    assert "paceline-autoscaler-1 has decided nothing about it" in silent
    files = held(tmp_path / "b.tar.gz")
    assert files[f"metrics/{namespace}/paceline-autoscaler-1.txt"].startswith("up 1\n")
    assert "started with" in files[f"logs/{namespace}/paceline-autoscaler-1/main.log"]
    assert not [name for name, text in files.items() if "canary" in text]


def canaries() -> list[Document]:
    """Objects with a secret in every place where people put them."""
    env = [{"name": "TOKEN", "value": CANARIES["env"]}]
    chat = service(runtime={"env": env, "args": [f"--api-key={CANARIES['argument']}"]})
    chat["metadata"] = {"name": "chat", "annotations": {"team.example.com/note": CANARIES["annotation"]}}
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "keys"},
        "stringData": {"k": CANARIES["secret"]},
    }
    labels = {"paceline.dev/service": "chat", "app.kubernetes.io/name": "paceline-worker"}
    pod = restricted_pod("chat-main-1", labels, "pass", CANARIES["env"])
    pod["metadata"]["annotations"] = {"paceline.dev/worker": CANARIES["pod"]}
    return [chat, secret, pod]


def autoscaler() -> Document:
    labels = {"app.kubernetes.io/name": "paceline-autoscaler", "app.kubernetes.io/part-of": "paceline"}
    pod = restricted_pod("paceline-autoscaler-1", labels, ADMIN, CANARIES["env"])
    pod["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/", "port": 8090}, "periodSeconds": 1}
    return pod
