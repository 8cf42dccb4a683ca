"""The README on a real cluster: helm install, kubectl apply, tokens; then all that happens to a service in its life.

One story told by tests in their order, RBAC on, every pod `restricted`, traffic through the gateway's Service. `chat`
is the example of `make up`, a real tiny model; `busy` is emulated, so that load and scaling need no GPU. Nothing is
asserted about how long anything takes: what has to come is waited for, within a limit.
"""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.up import INSTALL
from tests.cluster.harness.workbench import Workbench
from tests.cluster.traffic import Kind, streams, traffic
from tools.dashboards import boards, queries
from tools.dashboards.panels import PanelQuery

from paceline_cli.bench.client import BenchTarget

pytestmark = [pytest.mark.real, pytest.mark.timeout(420)]

ROOT = Path(__file__).parents[2]
SYSTEM, HOME = "paceline-system", "default"
BUSY: dict[str, Any] = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "busy", "namespace": HOME},
    "spec": {
        "model": {"source": "builtin://demo", "servedName": "busy"},
        "engine": {"maxModelLen": 8192, "emulate": {"accelerator": "l4", "model": "llama-3.1-8b", "coldStart": "2s"}},
        "classes": {"interactive": {"slo": {"ttft": {"p95": "2s"}}}},  # no tpot: on a busy machine steps are late
        "pools": [{"name": "main", "accelerator": "cpu", "gpusPerReplica": 0, "replicas": {"min": 1, "max": 4}}],
        "rollout": {"drainTimeout": "60s"},
    },
}
LIMIT_S = 90.0
CALM, HEAVY = Kind(rate=1.0), Kind(rate=8.0, words=1500)


@dataclass(slots=True)
class Story:
    """The cluster, and the key that an earlier test of the story made."""

    bench: Workbench
    kubectl: Kubectl
    key: str = ""

    @property
    def url(self) -> str:
        """The gateway's Service."""
        return self.bench.service(SYSTEM, "paceline-gateway", 80)

    def target(self, model: str) -> BenchTarget:
        """Where traffic goes."""
        return BenchTarget(f"{self.url}/v1", self.key, model)

    def service(self, name: str) -> dict[str, Any]:
        """An InferenceService as it is now."""
        found: dict[str, Any] = self.kubectl.json("get", "pisvc", name)
        return found

    def replicas(self, name: str) -> int:
        """What its Deployment wishes."""
        wished: int = self.kubectl.json("get", "deployment", f"{name}-main")["spec"]["replicas"]
        return wished

    def workers(self, name: str) -> list[str]:
        """Its pods that are ready and stay."""
        pods = self.kubectl.json("get", "pods", "-l", f"paceline.dev/service={name}")["items"]
        return [pod["metadata"]["name"] for pod in pods if _ready(pod)]


@pytest.fixture(scope="module")
def story(cluster: Workbench) -> Iterator[Story]:
    for name in (SYSTEM, HOME):
        labels = {"pod-security.kubernetes.io/enforce": "restricted"}
        cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
    yield Story(cluster, cluster.kubectl.within(HOME))
    cluster.kubectl("label", "namespace", HOME, "pod-security.kubernetes.io/enforce-")
    cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")


def test_helm_installs_paceline(story: Story) -> None:
    """By the line that `make cluster` prints, and sizes for a small machine."""
    small = ("--set=gateway.resources.requests.cpu=50m", "--set=gateway.lameDuckSeconds=2")
    _, *words = shlex.split(INSTALL.replace("charts/paceline", str(ROOT / "charts" / "paceline")))
    story.bench.helm()(*words, *small, limit_s=150)


def test_the_example_of_make_up_becomes_ready(story: Story) -> None:
    story.bench.kubectl("apply", "-f", str(ROOT / "examples" / "chat.yaml"))
    story.kubectl("wait", "--for=condition=Ready", "pisvc/chat", "--timeout=90s", limit_s=100)
    columns, row = story.kubectl("get", "pisvc", "chat").splitlines()
    assert columns.split() == ["NAME", "MODEL", "SERVED", "READY", "DESIRED", "SLO", "BURN", "REASON", "COST/H", "AGE"]
    assert row.split()[1:4] == ["builtin://demo", "demo", "1/1"]


def test_the_official_client_streams_tokens_through_the_gateways_service(story: Story) -> None:
    story.key = _plugin(story, "keys", "create", "local", "--system-namespace", SYSTEM)
    with OpenAI(base_url=f"{story.url}/v1", api_key=story.key, max_retries=0) as client:
        until("the gateway knows the key", lambda: "demo" in _models(client))
        messages: Any = [{"role": "user", "content": "What is a replica?"}]
        chunks = list(client.chat.completions.create(model="demo", messages=messages, stream=True, max_tokens=48))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert "one copy of a model" in text
    assert [choice.finish_reason for chunk in chunks for choice in chunk.choices][-1] == "stop"


def test_top_shows_what_all_gateways_see(story: Story) -> None:
    seen = json.loads(_plugin(story, "top", "--once", "--json", "--system-namespace", SYSTEM))
    assert (len(seen["gateways"]), seen["silent"]) == (2, [])
    assert {row["service"] for row in seen["classes"]} == {f"{HOME}/chat"}
    assert [row["state"] for row in seen["workers"]] == ["ready"]


def test_who_may_exec_in_a_gateways_pod_may_change_its_log_level(story: Story) -> None:
    ask = ("python", "-m", "paceline_gateway.admin", "PUT", "/v1/log-level", '{"level": "debug", "duration": "1s"}')
    told = story.bench.kubectl.within(SYSTEM)("exec", "deploy/paceline-gateway", "--", *ask)
    assert json.loads(told)["usual"] == "info"


def test_load_breaks_the_promise_and_replicas_are_added_for_a_reason(story: Story) -> None:
    story.kubectl.apply(BUSY)
    story.kubectl("wait", "--for=condition=Ready", "pisvc/busy", "--timeout=90s", limit_s=100)
    with traffic(story.target("busy"), HEAVY) as load:
        until("replicas are added and ready", lambda: len(story.workers("busy")) >= 3, told=lambda: _told(story))
        until("the status shows a broken promise", lambda: _condition(story.service("busy"), "SLOMet") == "False")
        until(
            "the status tells how many and why", lambda: _wants_more(story.service("busy")), told=lambda: _told(story)
        )
        until(
            "the promise is kept again",
            lambda: _condition(story.service("busy"), "SLOMet") == "True",
            told=lambda: _told(story),
            limit_s=180,
        )
    assert not load.failures
    assert "ScaledUp" in story.kubectl("get", "events", "--field-selector=involvedObject.name=busy")


def test_every_panel_of_every_board_shows_data(story: Story) -> None:
    with httpx.Client(base_url=story.bench.service(SYSTEM, "paceline-prometheus", 9090), timeout=10) as prometheus:
        asked = [query for board in boards() for query in queries(board, namespace=HOME) if not query.quiet]

        def empty() -> list[PanelQuery]:
            return [query for query in asked if not _samples(prometheus, query.expr)]

        with traffic(story.target("busy"), CALM):
            until("every panel has data", lambda: not empty(), told=lambda: "\n".join(map(str, empty())))


def test_replicas_are_given_back_while_fifty_streams_finish(story: Story) -> None:
    before = story.replicas("busy")
    with streams(story.target("busy"), number=50, tokens=700) as open_streams:
        until("fewer replicas are wished", lambda: story.replicas("busy") < before, told=lambda: _told(story))
    assert open_streams.failures == []
    assert len(open_streams.samples) == 50


def test_a_new_spec_rolls_under_load_without_a_failed_request(story: Story) -> None:
    before = set(story.workers("busy"))
    with traffic(story.target("busy"), CALM) as load:
        patch = '{"spec":{"engine":{"maxSeqs":48}}}'
        story.kubectl("patch", "pisvc", "busy", "--type=merge", "--patch", patch)
        story.kubectl("rollout", "status", "deployment/busy-main", "--timeout=90s", limit_s=100)
        until("only new workers are left", lambda: before.isdisjoint(story.workers("busy")))
    assert load.failures == []


def test_a_killed_worker_comes_back(story: Story) -> None:
    until("no more replicas are given back", lambda: story.replicas("busy") == len(story.workers("busy")) == 1)
    [worker] = story.workers("busy")
    os.kill(story.bench.processes(HOME, worker)[0], signal.SIGKILL)
    until("the worker was started again", lambda: _restarts(story, worker) > 0)
    until("the service is whole", lambda: len(story.workers("busy")) == story.replicas("busy"))


def test_every_worker_can_be_evicted_without_a_failed_request(story: Story) -> None:
    before = story.workers("busy")
    with traffic(story.target("busy"), CALM) as load:
        for worker in before:
            until(f"{worker} may be evicted", lambda worker=worker: _evicted(story, worker))  # type: ignore[misc]
        until("others serve in their place", lambda: len(set(story.workers("busy")) - set(before)) >= 1)
    assert load.failures == []


def test_an_idle_service_goes_to_zero_and_wakes_by_a_request(story: Story) -> None:
    idle = deepcopy(BUSY)
    idle["spec"]["pools"][0]["replicas"] = {"min": 0, "max": 2}
    idle["spec"]["scaling"] = {"scaleToZero": {"after": "10s"}}
    story.kubectl.apply(idle)
    until("it is at zero", lambda: story.replicas("busy") == 0 and not story.workers("busy"))
    until("the status says why", lambda: story.service("busy")["status"]["scaling"]["reason"] == "scale_to_zero")
    with streams(story.target("busy"), number=1, tokens=8) as woken:
        pass
    assert woken.failures == []
    assert story.replicas("busy") >= 1


def test_deleted_services_leave_nothing(story: Story) -> None:
    story.bench.kubectl("delete", "-f", str(ROOT / "examples" / "chat.yaml"))
    story.kubectl("delete", "pisvc", "busy")
    kinds = "deployments,replicasets,pods,services,poddisruptionbudgets,networkpolicies,serviceaccounts,configmaps"

    def left() -> str:
        return story.kubectl("get", kinds, "-l", "app.kubernetes.io/managed-by=paceline", "-o", "name")

    until("nothing of them is left", lambda: left() == "")


def test_an_uninstall_leaves_the_definitions(story: Story) -> None:
    story.bench.helm()("uninstall", "paceline", f"--namespace={SYSTEM}", "--wait")
    assert "inferenceservices.paceline.dev" in story.kubectl("get", "crd", "-o", "name")


def until(what: str, holds: Callable[[], Any], told: Callable[[], str] = str, limit_s: float = LIMIT_S) -> None:
    """Wait until something holds; fails naming it, and what is told of it."""
    end = time.monotonic() + limit_s
    while not holds():
        assert time.monotonic() < end, f"not seen within {limit_s:.0f} s: {what}\n{told()}"
        time.sleep(0.5)


def _samples(prometheus: httpx.Client, expr: str) -> list[Any]:
    reply = prometheus.post("/api/v1/query", data={"query": expr}).json()
    assert reply["status"] == "success", f"{expr}: {reply}"
    return list(reply["data"]["result"])


def _ready(pod: dict[str, Any]) -> bool:
    conditions = {c["type"]: c["status"] for c in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]


def _restarts(story: Story, worker: str) -> int:
    pod = story.kubectl.json("get", "pod", worker)
    return sum(status["restartCount"] for status in pod["status"]["containerStatuses"])


def _told(story: Story) -> str:
    return json.dumps(story.service("busy")["status"], indent=1)


def _wants_more(service: dict[str, Any]) -> bool:
    """Whether the decision that stands is for more than two, in words of replicas; it changes while load goes on."""
    scaling = service["status"]["scaling"]
    return scaling["desired"] >= 3 and "replica" in scaling["decision"]


def _condition(service: dict[str, Any], kind: str) -> str:
    return next((c["status"] for c in service["status"]["conditions"] if c["type"] == kind), "")


def _models(client: OpenAI) -> list[str]:
    return [model.id for model in client.models.list()]


def _plugin(story: Story, *words: str) -> str:
    """`kubectl paceline ...`, and what it printed."""
    argv = [
        str(Path(sys.executable).with_name("kubectl-paceline")),
        *words,
        "--kubeconfig",
        str(story.bench.kubeconfig),
    ]
    return subprocess.run(argv, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def _evicted(story: Story, worker: str) -> bool:
    """Ask the Eviction API; no while the budget does not allow it."""
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": worker, "namespace": HOME}}
    with story.bench.machine.api() as api:
        answer = api.post(f"/api/v1/namespaces/{HOME}/pods/{worker}/eviction", json=eviction)
    assert answer.status_code in (201, 404, 429), answer.text
    return answer.status_code != 429
