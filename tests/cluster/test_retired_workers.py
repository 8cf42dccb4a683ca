"""A scale-down on a real cluster: the ReplicaSet takes the worker that was retired, and every stream ends well.

One story told by tests in their order, with the chart's own roles: the autoscaler may not write to pods.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.harness.commands import CommandFailed, Kubectl
from tests.cluster.harness.up import INSTALL
from tests.cluster.harness.workbench import Workbench
from tests.cluster.test_golden_path import until
from tests.cluster.traffic import streams

from paceline_cli.bench.client import BenchTarget

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
SYSTEM, HOME = "paceline-system", "default"
PARTS = ("operator", "autoscaler", "gateway")
REPLICAS = 3
STREAMS, TOKENS = 5, 600
"""More than a worker has on average, so that one has fewer than the others, for half a minute."""
SERVICE: dict[str, Any] = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "busy", "namespace": HOME},
    "spec": {
        "model": {"source": "builtin://demo", "servedName": "busy"},
        "engine": {"maxModelLen": 4096, "emulate": {"accelerator": "l4", "model": "llama-3.1-8b", "coldStart": "1s"}},
        "pools": [
            {
                "name": "main",
                "accelerator": "cpu",
                "gpusPerReplica": 0,
                "replicas": {"min": REPLICAS, "max": REPLICAS},
            }
        ],
        "scaling": {"policy": "fixed"},
        "rollout": {"drainTimeout": "60s"},
    },
}
TENANT: dict[str, Any] = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "Tenant",
    "metadata": {"name": "local", "namespace": SYSTEM},
    "spec": {"services": ["*"]},
}


@dataclass(slots=True)
class Story:
    """The cluster with paceline and three workers, and a key."""

    bench: Workbench
    kubectl: Kubectl
    key: str = ""

    @property
    def target(self) -> BenchTarget:
        """Where streams go."""
        return BenchTarget(f"{self.bench.service(SYSTEM, 'paceline-gateway', 80)}/v1", self.key, "busy")

    def plugin(self, *words: str) -> str:
        """`kubectl paceline ...`, and what it printed."""
        program = str(Path(sys.executable).with_name("kubectl-paceline"))
        argv = [program, *words, "--system-namespace", SYSTEM, "--kubeconfig", str(self.bench.kubeconfig)]
        done = subprocess.run(argv, check=False, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def want(self, replicas: int) -> None:
        """Policy `fixed` keeps so many."""
        value = {"min": replicas, "max": replicas}
        patch = json.dumps([{"op": "replace", "path": "/spec/pools/0/replicas", "value": value}])
        self.kubectl("patch", "pisvc", "busy", "--type=json", "--patch", patch)

    def ordered(self) -> int:
        """What the Deployment wishes."""
        wished: int = self.kubectl.json("get", "deployment", "busy-main")["spec"]["replicas"]
        return wished

    def staying(self) -> set[str]:
        """The workers that are not ordered to end."""
        pods = self.kubectl.json("get", "pods", "-l", "paceline.dev/service=busy")["items"]
        return {pod["metadata"]["name"] for pod in pods if "deletionTimestamp" not in pod["metadata"]}

    def running(self) -> dict[str, int]:
        """The streams at each worker, over all gateways."""
        seen = json.loads(self.plugin("top", "--once", "--json"))
        return {row["worker"]: row["in_flight"] for row in seen["workers"]}


@pytest.fixture(scope="module")
def story(cluster: Workbench) -> Iterator[Story]:
    cluster.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    _, *words = shlex.split(INSTALL.replace("charts/paceline", str(ROOT / "charts" / "paceline")))
    small = [f"--set={part}.replicas=1" for part in PARTS]
    cluster.helm()(*words, *small, "--set=prometheus.install=false", limit_s=150)
    made = Story(cluster, cluster.kubectl.within(HOME))
    cluster.kubectl.apply(SERVICE, TENANT)
    made.key = made.plugin("keys", "create", "local").split()[-1]
    until("three workers are ready", lambda: len(made.running()) == REPLICAS)
    yield made
    made.kubectl("delete", "pisvc", "busy", "--ignore-not-found")
    cluster.helm()("uninstall", "paceline", f"--namespace={SYSTEM}", "--wait")
    cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")


def test_the_least_busy_worker_goes_and_every_stream_ends_well(story: Story) -> None:
    before = story.staying()
    with streams(story.target, STREAMS, TOKENS) as answers:
        until("every stream runs", lambda: sum(story.running().values()) == STREAMS)
        running = story.running()
        story.want(REPLICAS - 1)
        until("a worker is ordered to end", lambda: len(story.staying()) == REPLICAS - 1)
        (victim,) = before - story.staying()
        said = story.kubectl("logs", victim)
    assert running[victim] == min(running.values()), running
    assert '"retired"' in said
    assert story.ordered() == REPLICAS - 1
    assert answers.failures == []
    assert len(answers.samples) == STREAMS


def test_the_autoscaler_needs_no_right_to_change_pods(story: Story) -> None:
    account = f"--as=system:serviceaccount:{SYSTEM}:paceline-autoscaler"
    for verb in ("patch", "update", "delete"):
        with pytest.raises(CommandFailed):
            story.kubectl("auth", "can-i", verb, "pods", account)
    assert story.kubectl("auth", "can-i", "update", "deployments", "--subresource=scale", account).strip() == "yes"
