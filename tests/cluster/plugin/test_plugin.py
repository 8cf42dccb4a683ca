"""`kubectl paceline` on a real API server, as its user calls it: arguments in; text, errors and exit status out."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.tools import program
from tests.cluster.harness.workbench import Workbench
from tests.cluster.plugin_user import Call, as_user, service
from tests.cluster.served import Document

from paceline_autoscaler.policies.constraints import why_paused
from paceline_cli.main import CLUSTER_COMMANDS
from paceline_core.auth import ApiKeyRecord, verify

pytestmark = pytest.mark.real

DOCS = Path(__file__).parents[3] / "docs" / "kubectl.md"
STATUS = {
    "workload": {"summary": "2/3", "model": "builtin://demo", "pools": [{"name": "main", "ready": 2, "starting": 1}]},
    "scaling": {"desired": 3, "decision": "2 -> 3: demand needs 2.4 replicas.", "reason": "demand"},
}


@pytest.fixture
def chat(kubectl: Kubectl) -> Document:
    """A service whose status somebody wrote."""
    kubectl.apply(service())
    kubectl(
        "patch", "pisvc", "chat", "--subresource=status", "--type=merge", f"--patch={json.dumps({'status': STATUS})}"
    )
    found: Document = kubectl.json("get", "pisvc", "chat")
    return found


def test_kubectl_finds_the_plugin(apiserver: Workbench, namespace: str, chat: Document) -> None:
    places = [str(Path(sys.executable).parent), str(program("kubectl", "kubernetes").parent), os.environ["PATH"]]
    environment = {**os.environ, "PATH": os.pathsep.join(places), "KUBECONFIG": str(apiserver.kubeconfig)}
    done = subprocess.run(
        ["kubectl", "paceline", "status", "-n", namespace],
        env=environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    head, line = done.stdout.splitlines()
    assert head.split() == [
        "NAMESPACE",
        "NAME",
        "MODEL",
        "SERVED",
        "READY",
        "DESIRED",
        "SLO",
        "BURN",
        "REASON",
        "COST/H",
        "AGE",
    ]
    assert line.split()[:6] == [namespace, "chat", "builtin://demo", "2/3", "3", "demand"]


def test_every_command_of_the_page_does_what_it_says(
    call: Call, kubectl: Kubectl, chat: Document, tmp_path: Path
) -> None:
    """docs/kubectl.md, line by line, in its order."""
    lines = [
        line for line in DOCS.read_text().splitlines() if line.startswith("kubectl paceline ") and "--help" not in line
    ]
    assert {shlex.split(line)[2] for line in lines} == set(CLUSTER_COMMANDS) - {"version"}
    kubectl.apply(tenant("team-a"))
    for line in lines:
        names = kubectl("get", "secret", "--selector=paceline.dev/tenant", "--output=name").split()
        identity = names[-1].rpartition("-")[2] if names else ""
        words = [
            {"ID": identity, "support-bundle.tar.gz": str(tmp_path / "b")}.get(word, word)
            for word in shlex.split(line)[2:]
        ]
        code, out, err = call(*words)
        if words[0] == "top":
            assert (code, out, "no gateway runs there" in err) == (1, "", True), err
        elif words[0] in ("quote", "what-if"):
            assert (code, out, "no autoscaler runs in namespace" in err) == (1, "", True), err
        else:
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


@pytest.mark.parametrize("command", [("status",), ("why",), ("pause", "--for", "1h"), ("resume",)])
def test_a_name_that_is_not_there_is_one_line_with_the_likely_one(
    call: Call, namespace: str, chat: Document, command: tuple[str, ...]
) -> None:
    name, *options = command
    code, out, err = call(name, "caht", *options)
    assert (code, out) == (1, "")
    assert err == f"error: there is no InferenceService caht in namespace {namespace}; did you mean chat?\n"


def test_a_pause_is_what_the_autoscaler_reads_and_changes_nothing_else(
    call: Call, kubectl: Kubectl, chat: Document
) -> None:
    code, out, _ = call("pause", "chat", "--for", "2h", "--reason", "launch day")
    found = kubectl.json("get", "pisvc", "chat", "--show-managed-fields")
    until = found["metadata"]["annotations"]["paceline.dev/pause-until"]
    assert code == 0
    assert until in out
    assert why_paused(until, 0) == f"paused until {until}"
    assert found["metadata"]["generation"] == chat["metadata"]["generation"]
    assert found["spec"] == chat["spec"]
    assert "kubectl-paceline" in {entry["manager"] for entry in found["metadata"]["managedFields"]}
    assert f"paused    until {until}: launch day" in call("status", "chat")[1]


def test_a_pause_of_anybody_is_ended(call: Call, kubectl: Kubectl, chat: Document) -> None:
    kubectl("annotate", "pisvc", "chat", "paceline.dev/pause-until=2099-01-01T00:00:00Z", "note=kept")
    assert call("resume", "chat")[0] == 0
    assert kubectl.json("get", "pisvc", "chat")["metadata"]["annotations"] == {"note": "kept"}


def tenant(name: str) -> Document:
    spec = {"services": ["*"]}
    return {"apiVersion": "paceline.dev/v1alpha1", "kind": "Tenant", "metadata": {"name": name}, "spec": spec}


def test_a_key_is_shown_once_and_the_cluster_keeps_its_hash(call: Call, kubectl: Kubectl, namespace: str) -> None:
    code, out, err = call("keys", "create", "team")
    assert (code, out) == (1, "")
    assert err.startswith(f"error: there is no Tenant team in {namespace}, nor any other; apply it first")
    kubectl.apply(tenant("team"))
    code, out, err = call("keys", "create", "team")
    text = out.strip()
    (secret,) = kubectl.json("get", "secret", "--selector=paceline.dev/tenant=team")["items"]
    assert (code, err) == (0, "")
    assert verify(text, ApiKeyRecord.from_manifest(secret))
    assert text.rpartition("_")[2] not in json.dumps(secret)


def test_keys_are_listed_and_revoked_by_their_id_and_nothing_else_is(call: Call, kubectl: Kubectl) -> None:
    other = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "other", "labels": {"paceline.dev/tenant": "t"}},
    }
    kubectl.apply(other, tenant("one"), tenant("two"))
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
    paused_code, _, paused_err = run("pause", "chat", "--for", "1h", "-n", namespace, "--kubeconfig", user)
    assert (paused_code, len(paused_err.splitlines())) == (1, 1)


def test_why_needs_no_more_than_reading_the_service(
    run: Call, apiserver: Workbench, namespace: str, chat: Document, tmp_path: Path
) -> None:
    rule = {"apiGroups": ["paceline.dev"], "resources": ["inferenceservices"], "verbs": ["get", "list"]}
    user = as_user(apiserver, namespace, [rule], tmp_path)
    code, out, _ = run("why", "chat", "-n", namespace, "--kubeconfig", user)
    assert code == 0
    assert "the autoscaler's pods cannot be listed" in out
    assert "status  demand: 2 -> 3" in out
    assert f"Events may not be read with these rights: list on events in namespace {namespace} is missing" in out


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
