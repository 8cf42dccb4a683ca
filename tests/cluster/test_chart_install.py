"""docs/install.md on a real cluster: its commands in its order, and what they leave standing.

One story told by tests in their order. What is added to the page's commands: the image of this checkout, and one
replica where two would only cost time. The last test installs twice, by Helm 4 and by Helm 3.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.cluster.harness.parts import wait_until
from tests.cluster.harness.tools import program
from tests.cluster.harness.workbench import Workbench

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/install.md").read_text()
SYSTEM = "paceline-system"
IMAGE = "localhost/paceline:test"
PARTS = ("operator", "autoscaler", "gateway", "worker", "prometheus")
LIMIT_S = 150.0
SERVICE: dict[str, Any] = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "kept"},
    "spec": {
        "model": {"source": "builtin://demo", "servedName": "kept"},
        "engine": {"maxModelLen": 1024, "emulate": {"accelerator": "l4", "model": "llama-3.1-8b", "coldStart": "1s"}},
        "classes": {"interactive": {"slo": {"ttft": {"p95": "2s"}}}},
        "pools": [{"name": "main", "accelerator": "cpu", "gpusPerReplica": 0, "replicas": {"min": 1, "max": 1}}],
    },
}


@dataclass(slots=True)
class Page:
    """The page's commands on a cluster; `home` is a namespace for services."""

    bench: Workbench
    home: str
    values: Path

    def run(self, section: str, *starts: str) -> str:
        """Run the commands of a section that begin with one of `starts` (all without), as a shell would."""
        lines = [line for line in _commands(section) if not starts or line.startswith(starts)]
        assert lines, section
        return "".join(self.shell(self._with_images(line)) for line in lines)

    def shell(self, line: str) -> str:
        """One command in the checkout, with the cluster's kubectl and Helm on PATH."""
        places = [program("kubectl", "kubernetes").parent, program("helm").parent, Path(sys.executable).parent]
        path = os.pathsep.join([*map(str, places), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(self.bench.kubeconfig)}
        done = subprocess.run(
            ["sh", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout

    def pods(self, namespace: str, *words: str) -> dict[str, str]:
        """Names and uids of the pods that stay."""
        items = self.bench.kubectl.within(namespace).json("get", "pods", *words)["items"]
        stay = [item["metadata"] for item in items if "deletionTimestamp" not in item["metadata"]]
        return {item["name"]: item["uid"] for item in stay}

    def workers(self) -> dict[str, str]:
        """Those of the service that is kept."""
        return self.pods(self.home, "-l", "paceline.dev/service=kept")

    def ready(self, namespace: str, name: str = "kept") -> None:
        """Wait until a service is ready."""
        words = ("wait", "--for=condition=Ready", f"pisvc/{name}", "--timeout=90s")
        self.bench.kubectl.within(namespace)(*words, limit_s=100)

    def _with_images(self, line: str) -> str:
        return f"{line} --values {self.values}" if re.match(r"helm (install|upgrade) ", line) else line


@pytest.fixture(scope="module")
def page(cluster: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    values = tmp_path_factory.mktemp("values") / "images.json"
    said: dict[str, dict[str, Any]] = {part: {"image": IMAGE} for part in PARTS}
    for part in ("operator", "autoscaler"):
        said[part]["replicas"] = 1
    said["gateway"]["lameDuckSeconds"] = 1
    values.write_text(json.dumps(said))
    with cluster.namespace() as home:
        cluster.kubectl("delete", "namespace", SYSTEM, "--ignore-not-found", limit_s=100)
        cluster.kubectl("delete", "crd", "--ignore-not-found", *CRDS, limit_s=100)
        yield Page(cluster, home, values)
        cluster.kubectl("delete", "namespace", SYSTEM, "--ignore-not-found", "--wait=false")


def test_the_page_installs_a_paceline_that_is_alive(page: Page) -> None:
    said = page.run("Install", "kubectl create", "kubectl label", "helm ")
    assert "paceline 0.1.0 is installed in paceline-system" in said
    assert re.search(r"Phase: +Succeeded", said)
    page.bench.kubectl.within(page.home).apply(SERVICE)
    page.ready(page.home)


def test_the_small_prometheus_scrapes_every_part_and_every_worker(page: Page) -> None:
    url = page.bench.service(SYSTEM, "paceline-prometheus", 9090)
    wanted = {*page.pods(SYSTEM, "-l", "app.kubernetes.io/part-of=paceline"), *page.workers()}

    def up() -> set[str]:
        answer = httpx.get(f"{url}/api/v1/query", params={"query": "up == 1"}, trust_env=False).json()
        return {row["metric"]["pod"] for row in answer["data"]["result"]}

    wait_until("every target is up", lambda: up() == wanted, (), 60)
    rules = httpx.get(f"{url}/api/v1/rules", trust_env=False).json()["data"]["groups"]
    assert rules
    assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}


def test_an_upgrade_replaces_gateways_and_crds_and_no_worker(page: Page, tmp_path: Path) -> None:
    workers, gateways = page.workers(), page.pods(SYSTEM, "-l", "app.kubernetes.io/name=paceline-gateway")
    newer = tmp_path / "charts/paceline"
    shutil.copytree(ROOT / "charts/paceline", newer)
    [crd] = newer.glob("charts/*/files/inferenceservices.*")
    crd.write_text(crd.read_text().replace("- name: Model\n", "- name: Serves\n"))
    [line] = _commands("Upgrade")[:1]
    page.shell(f"{line.replace('charts/paceline', str(newer))} --values {page.values} --set logLevel=DEBUG")
    assert "SERVES" in page.bench.kubectl("get", "pisvc", "--all-namespaces")
    assert not gateways.keys() & page.pods(SYSTEM, "-l", "app.kubernetes.io/name=paceline-gateway").keys()
    page.ready(page.home)
    assert page.workers() == workers


def test_an_uninstall_leaves_the_crds_the_objects_and_what_serves(page: Page) -> None:
    workers = page.workers()
    page.shell(_commands("Uninstall")[0])
    assert page.bench.kubectl.within(SYSTEM).json("get", "deployments")["items"] == []
    assert len(_crds(page)) == 4
    assert page.workers() == workers
    [worker] = workers
    address = page.bench.pod(page.home, worker, 8001)
    assert httpx.get(f"{address}/readyz", trust_env=False).status_code == 200


def test_the_same_install_takes_everything_up_again(page: Page) -> None:
    workers = page.workers()
    page.run("Install", "helm install")
    assert "MODEL" in page.bench.kubectl("get", "pisvc", "--all-namespaces")
    page.ready(page.home)
    assert page.workers() == workers


def test_the_way_out_removes_everything(page: Page) -> None:
    _, first, *rest = _commands("Uninstall")
    assert first.startswith("kubectl delete inferenceservices")
    page.shell(first)
    assert [item for item in _left(page) if "ownerReferences" in item["metadata"]] == []
    for line in rest:
        page.shell(line)
    assert _crds(page) == []
    for kind in ("clusterroles", "clusterrolebindings"):
        assert page.bench.kubectl.json("get", kind, "-l", "app.kubernetes.io/part-of=paceline")["items"] == []
    wait_until("nothing is left where the service was", lambda: _left(page) == [], (), 60)


def test_two_installs_watch_their_own_namespaces_and_nothing_of_the_cluster(page: Page) -> None:
    words = (f"--values={page.values}", "--set=gateway.replicas=1", "--set=prometheus.install=false", "--wait")
    four, three = page.bench.helm(), page.bench.helm("helm3")
    with page.bench.namespace() as one, page.bench.namespace() as other, page.bench.namespace() as second:
        try:
            no_crds = ("--set=crds.install=false",)
            for helm, system, watched, more in ((four, one, page.home, ()), (three, second, other, no_crds)):
                place = (f"--namespace={system}", f"--set=watchNamespaces={{{watched}}}", "--timeout=100s")
                helm("install", "paceline", str(ROOT / "charts/paceline"), *place, *more, *words, limit_s=120)
            for namespace in (one, page.home, other):  # nobody watches the first
                page.bench.kubectl.within(namespace).apply(SERVICE)
            for namespace in (page.home, other):
                page.ready(namespace)
            assert (
                page.bench.kubectl.json("get", "clusterroles", "-l", "app.kubernetes.io/part-of=paceline")["items"]
                == []
            )
            assert page.bench.kubectl.within(one).json("get", "pisvc", "kept").get("status") is None
        finally:
            page.bench.kubectl("delete", "pisvc", "--all", "--all-namespaces", "--wait=false")
            for helm, system in ((four, one), (three, second)):
                helm("uninstall", "paceline", f"--namespace={system}", "--ignore-not-found")
            page.bench.kubectl("delete", "crd", "--ignore-not-found", *CRDS)


CRDS = [path.stem for path in sorted((ROOT / "crds").glob("*.yaml"))]


def _commands(section: str) -> list[str]:
    """The shell lines of the page's section."""
    [text] = [part for part in PAGE.split("\n## ") if part.startswith(f"{section}\n")]
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if not line.startswith("#")]


def _crds(page: Page) -> list[str]:
    found = page.bench.kubectl.json("get", "customresourcedefinitions")["items"]
    return [item["metadata"]["name"] for item in found if item["spec"]["group"] == "paceline.dev"]


def _left(page: Page) -> list[dict[str, Any]]:
    """What is in the home of services beyond what every namespace has."""
    kinds = "all,configmaps,secrets,networkpolicies,pdb,serviceaccounts"
    found = page.bench.kubectl.within(page.home).json("get", kinds)["items"]
    stays = {"kube-root-ca.crt", "default"}
    return [item for item in found if item["metadata"]["name"] not in stays and not _goes(item)]


def _goes(item: dict[str, Any]) -> bool:
    """A pod that still finishes its streams is on its way."""
    return "deletionTimestamp" in item["metadata"]
