"""`kubectl paceline` on a real API server, as its user calls it: arguments in; text, errors and exit status out."""

import json
import os
import shlex
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.images import PACELINE_IMAGE, USER
from tests.cluster.harness.tools import program
from tests.cluster.harness.workbench import Workbench
from tests.cluster.served import Document, serving
from tests.core.objects.corpus import valid

from paceline_autoscaler.freeze import frozen
from paceline_cli.main import CLUSTER_COMMANDS, plugin
from paceline_core.auth import KeyRecord, verify

pytestmark = pytest.mark.real

DOCS = Path(__file__).parents[2] / "docs" / "kubectl.md"
Call = Callable[..., tuple[int, str, str]]
STATUS = {
    "workload": {"summary": "2/3", "pools": [{"name": "main", "ready": 2, "starting": 1}]},
    "scaling": {"desired": 3, "decision": "2 -> 3: demand needs 2.4 replicas.", "reason": "demand"},
}
CANARIES = {name: f"canary-{name}" for name in ("env", "argument", "annotation", "secret", "log", "metric", "pod")}
ADMIN = """
import json, os, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
ENTRY = {"observation": {"now": 1769860800.0}, "held": 2, "decision": {"direction": "up", "reason": "demand",
         "sentence": "1 -> 2: demand needs 1.6 replicas.", "limit": "max", "gaps": [], "rejected": ["1: too few"]}}
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


@pytest.fixture(scope="module")
def api(apiserver: Workbench) -> Iterator[httpx.Client]:
    with serving(apiserver) as client:
        yield client


@pytest.fixture
def namespace(apiserver: Workbench, api: httpx.Client) -> Iterator[str]:
    with apiserver.namespace() as name:
        yield name


@pytest.fixture
def kubectl(apiserver: Workbench, namespace: str) -> Kubectl:
    return apiserver.kubectl.within(namespace)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            plugin(list(arguments))
        out, err = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    return called


@pytest.fixture
def call(run: Call, apiserver: Workbench, namespace: str) -> Call:
    """The plugin as the administrator, in the test's namespace, which is paceline's own too."""

    def called(*arguments: str) -> tuple[int, str, str]:
        system = () if arguments[0] in {"status", "freeze", "unfreeze"} else ("--system-namespace", namespace)
        place = () if arguments[0] == "keys" else ("-n", namespace)
        return run(*arguments, *place, *system, "--kubeconfig", str(apiserver.kubeconfig))

    return called


@pytest.fixture
def chat(kubectl: Kubectl) -> Document:
    """A service whose status somebody wrote."""
    kubectl.apply(service())
    kubectl(
        "patch", "pisvc", "chat", "--subresource=status", "--type=merge", f"--patch={json.dumps({'status': STATUS})}"
    )
    found: Document = kubectl.json("get", "pisvc", "chat")
    return found


def service(name: str = "chat", **spec: Any) -> Document:
    document = valid()["minimal"]
    return {**document, "metadata": {"name": name}, "spec": {**document["spec"], **spec}}


def as_user(bench: Workbench, namespace: str, rules: list[dict[str, list[str]]], folder: Path) -> str:
    """The kubeconfig of a ServiceAccount that may do only what the rules say, in one namespace."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    kubectl = bench.kubectl.within(namespace)
    kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}},
        {**rbac, "kind": "Role", "rules": rules},
        {**rbac, "kind": "RoleBinding", "subjects": [subject], "roleRef": reference},
    )
    config = yaml.safe_load(bench.kubeconfig.read_text())
    config["users"] = [
        {"name": config["users"][0]["name"], "user": {"token": kubectl("create", "token", "reader").strip()}}
    ]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def held(path: Path) -> dict[str, str]:
    """Every file of a bundle, by its path without the folder."""
    with tarfile.open(path) as tar:
        files = {entry.name.partition("/")[2]: tar.extractfile(entry) for entry in tar.getmembers()}
        return {name: file.read().decode() for name, file in files.items() if file is not None}


def test_kubectl_finds_the_plugin(apiserver: Workbench, namespace: str, chat: Document) -> None:
    places = [str(Path(sys.executable).parent), str(program("kubectl", "kubernetes").parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(places), "KUBECONFIG": str(apiserver.kubeconfig)}
    done = subprocess.run(
        ["kubectl", "paceline", "status", "-n", namespace],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    head, line = done.stdout.splitlines()
    assert head.split() == ["NAMESPACE", "NAME", "MODEL", "READY", "DESIRED", "SLO", "BURN", "REASON", "COST/H", "AGE"]
    assert line.split()[:6] == [namespace, "chat", "builtin://demo", "2/3", "3", "demand"]


def test_every_command_of_the_page_does_what_it_says(
    call: Call, kubectl: Kubectl, chat: Document, tmp_path: Path
) -> None:
    """docs/kubectl.md, line by line, in its order."""
    lines = [
        line for line in DOCS.read_text().splitlines() if line.startswith("kubectl paceline ") and "--help" not in line
    ]
    assert {shlex.split(line)[2] for line in lines} == set(CLUSTER_COMMANDS) - {"version"}
    for line in lines:
        names = kubectl("get", "secret", "--selector=paceline.dev/tenant", "--output=name").split()
        identity = names[-1].rpartition("-")[2] if names else ""
        words = [
            {"ID": identity, "bundle.tar.gz": str(tmp_path / "b")}.get(word, word) for word in shlex.split(line)[2:]
        ]
        code, out, err = call(*words)
        assert (code, bool(out)) == (0, True), (line, err)


def test_help_lists_every_command(run: Call) -> None:
    code, out, _ = run("--help")
    assert code == 0
    assert out.startswith("Usage: kubectl paceline ")
    assert all(name in out for name in CLUSTER_COMMANDS)


def test_status_of_one_service_tells_everything(call: Call, namespace: str, chat: Document) -> None:
    code, out, _ = call("status", "chat")
    assert code == 0
    assert out.startswith(f"{namespace}/chat  chat  builtin://demo\n  replicas  2/3 ready, 1 starting\n")
    assert "demand: 2 -> 3: demand needs 2.4 replicas." in out


def test_status_speaks_json_and_yaml(call: Call, chat: Document) -> None:
    assert json.loads(call("status", "chat", "-o", "json")[1])["status"] == STATUS
    (found,) = yaml.safe_load(call("status", "-o", "yaml")[1])["services"]
    assert found["status"] == STATUS


def test_all_namespaces_are_one_table(call: Call, namespace: str, chat: Document) -> None:
    assert any(line.startswith(f"{namespace} ") for line in call("status", "-A")[1].splitlines())


def test_an_empty_namespace_says_where_else_to_look(call: Call, namespace: str) -> None:
    assert call("status") == (0, "", f"no services in namespace {namespace}; try -A\n")


@pytest.mark.parametrize("command", [("status",), ("why",), ("freeze", "--for", "1h"), ("unfreeze",)])
def test_a_name_that_is_not_there_is_one_line_with_the_likely_one(
    call: Call, namespace: str, chat: Document, command: tuple[str, ...]
) -> None:
    name, *options = command
    code, out, err = call(name, "caht", *options)
    assert (code, out) == (1, "")
    assert err == f"error: there is no InferenceService caht in namespace {namespace}; did you mean chat?\n"


def test_a_freeze_is_what_the_autoscaler_reads_and_changes_nothing_else(
    call: Call, kubectl: Kubectl, chat: Document
) -> None:
    code, out, _ = call("freeze", "chat", "--for", "2h", "--reason", "launch day")
    found = kubectl.json("get", "pisvc", "chat", "--show-managed-fields")
    until = found["metadata"]["annotations"]["paceline.dev/freeze-until"]
    assert code == 0
    assert until in out
    assert frozen(until, 0) == f"frozen until {until}"
    assert found["metadata"]["generation"] == chat["metadata"]["generation"]
    assert found["spec"] == chat["spec"]
    assert "kubectl-paceline" in {entry["manager"] for entry in found["metadata"]["managedFields"]}
    assert f"frozen    until {until}: launch day" in call("status", "chat")[1]


def test_a_freeze_of_anybody_is_ended(call: Call, kubectl: Kubectl, chat: Document) -> None:
    kubectl("annotate", "pisvc", "chat", "paceline.dev/freeze-until=2099-01-01T00:00:00Z", "note=kept")
    assert call("unfreeze", "chat")[0] == 0
    assert kubectl.json("get", "pisvc", "chat")["metadata"]["annotations"] == {"note": "kept"}


def test_a_key_is_shown_once_and_the_cluster_keeps_its_hash(call: Call, kubectl: Kubectl) -> None:
    code, out, err = call("keys", "create", "team")
    text = out.strip()
    (secret,) = kubectl.json("get", "secret", "--selector=paceline.dev/tenant=team")["items"]
    assert code == 0
    assert "there is no Tenant team" in err
    assert verify(text, KeyRecord.from_manifest(secret))
    assert text.rpartition("_")[2] not in json.dumps(secret)


def test_keys_are_listed_and_revoked_by_their_id_and_nothing_else_is(call: Call, kubectl: Kubectl) -> None:
    other = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "other", "labels": {"paceline.dev/tenant": "t"}},
    }
    kubectl.apply(other)
    identities = [json.loads(call("keys", "create", name, "-o", "json")[1])["id"] for name in ("one", "two")]
    listed = json.loads(call("keys", "list", "-o", "json")[1])["keys"]
    assert sorted(row["id"] for row in listed) == sorted(identities)
    assert call("keys", "revoke", identities[0])[:2] == (0, f"{identities[0]} of one is revoked\n")
    assert identities[0] not in call("keys", "list")[1]
    code, _, err = call("keys", "revoke", "other")
    assert (code, err.startswith("error: there is no key 'other' in ")) == (1, True)
    assert kubectl("get", "secret", "other", "--output=name").strip() == "secret/other"


def test_why_without_a_ledger_tells_status_and_events_and_says_so(
    call: Call, kubectl: Kubectl, namespace: str, chat: Document
) -> None:
    about = {"kind": "InferenceService", "name": "chat", "namespace": namespace, "uid": chat["metadata"]["uid"]}
    kubectl.apply(event("one", about, "Scaled", "2 -> 3: demand."), event("two", {**about, "name": "x"}, "No", "x"))
    code, out, _ = call("why", "chat")
    assert code == 0
    assert out.splitlines() == [
        f"source: status and Events, since no autoscaler runs in namespace {namespace}",
        "status  demand: 2 -> 3: demand needs 2.4 replicas.",
        "event   2026-01-31T12:00:00Z  Scaled: 2 -> 3: demand.",
    ]
    assert json.loads(call("why", "chat", "-o", "json")[1])["events"][0]["reason"] == "Scaled"


def test_a_right_that_is_missing_is_named_in_one_line(
    run: Call, apiserver: Workbench, namespace: str, chat: Document, tmp_path: Path
) -> None:
    user = as_user(apiserver, namespace, [], tmp_path)
    code, out, err = run("status", "-n", namespace, "--kubeconfig", user)
    assert (code, out, len(err.splitlines())) == (1, "", 1)
    assert 'cannot list resource "inferenceservices"' in err
    assert "ask the cluster's administrator for a role with this verb" in err
    frozen_code, _, frozen_err = run("freeze", "chat", "--for", "1h", "-n", namespace, "--kubeconfig", user)
    assert (frozen_code, len(frozen_err.splitlines())) == (1, 1)


def test_why_needs_no_more_than_reading_the_service(
    run: Call, apiserver: Workbench, namespace: str, chat: Document, tmp_path: Path
) -> None:
    rule = {"apiGroups": ["paceline.dev"], "resources": ["inferenceservices"], "verbs": ["get", "list"]}
    user = as_user(apiserver, namespace, [rule], tmp_path)
    code, out, _ = run("why", "chat", "-n", namespace, "--kubeconfig", user)
    assert code == 0
    assert "the autoscaler's pods cannot be listed" in out
    assert "status  demand: 2 -> 3" in out
    assert "Events may not be read with these rights" in out


def test_a_bundle_holds_what_there_is_and_no_canary(
    call: Call, kubectl: Kubectl, namespace: str, tmp_path: Path
) -> None:
    kubectl.apply(*canaries())
    path = tmp_path / "bundle.tar.gz"
    code, out, _ = call("bundle", "-o", str(path))
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
    run: Call, apiserver: Workbench, namespace: str, chat: Document, tmp_path: Path
) -> None:
    rule = {"apiGroups": ["paceline.dev"], "resources": ["inferenceservices"], "verbs": ["get", "list"]}
    user = as_user(apiserver, namespace, [rule], tmp_path)
    path = tmp_path / "bundle.tar.gz"
    assert run("bundle", "-o", str(path), "-n", namespace, "--kubeconfig", user)[0] == 0
    files = held(path)
    assert "chat" in files[f"objects/{namespace}/InferenceService.json"]
    assert "forbidden" in json.loads(files["index.json"])["entries"][f"objects/{namespace}/Pod.json"]["missing"]


def test_a_bundle_is_never_written_over_a_file(call: Call, chat: Document, tmp_path: Path) -> None:
    path = tmp_path / "there"
    path.write_text("mine")
    code, _, err = call("bundle", "-o", str(path))
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
        run("bundle", "-o", str(tmp_path / "b.tar.gz"), *place)
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


def event(name: str, about: dict[str, str], reason: str, message: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": about["namespace"]},
        "involvedObject": about,
        "type": "Normal",
        "reason": reason,
        "message": message,
        "lastTimestamp": "2026-01-31T12:00:00Z",
    }


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
    pod = restricted_pod("chat-main-1", labels, "pass")
    pod["metadata"]["annotations"] = {"paceline.dev/worker": CANARIES["pod"]}
    return [chat, secret, pod]


def autoscaler() -> Document:
    labels = {"app.kubernetes.io/name": "paceline-autoscaler", "app.kubernetes.io/part-of": "paceline"}
    pod = restricted_pod("paceline-autoscaler-1", labels, ADMIN)
    pod["spec"]["containers"][0]["readinessProbe"] = {"httpGet": {"path": "/", "port": 8090}, "periodSeconds": 1}
    return pod


def restricted_pod(name: str, labels: dict[str, str], source: str) -> Document:
    """A pod that the restricted level accepts; its environment holds a canary."""
    container = {
        "name": "main",
        "image": PACELINE_IMAGE,
        "command": ["python", "-c", source],
        "env": [{"name": "TOKEN", "value": CANARIES["env"]}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    security = {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
