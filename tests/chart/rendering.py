"""The chart as Helm renders it: documents by kind and name, one rendering a set of values for the whole run."""

import functools
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.cluster.harness.tools import program

Manifest = dict[str, Any]
ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/paceline"
NAMESPACE = "paceline-system"
PARTS = ("operator", "autoscaler", "gateway")
LIMIT_S = 60.0
KUBERNETES = "1.30.0"
MONITORING = ("monitoring.coreos.com/v1/PodMonitor", "monitoring.coreos.com/v1/PrometheusRule")
FORMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "as it is": ((), ()),
    "one of each": (("operator.replicas=1", "autoscaler.replicas=1", "gateway.replicas=1"), ()),
    "in two namespaces": (("watchNamespaces={chat,batch}",), ()),
    "without CRDs": (("crds.install=false",), ()),
    "with your Prometheus": (("prometheus.url=http://prometheus.metrics.svc:9090",), ()),
    "without a Prometheus": (("prometheus.install=false",), ()),
    "beside a Prometheus Operator": (
        ("monitoring.namespaces={metrics}", "monitoring.labels.release=stack"),
        MONITORING,
    ),
    "with everything said": (
        (
            "image.repository=example.org/paceline",
            "image.tag=1.2.3",
            "image.pullSecrets={registry}",
            "autoscaler.ledger.size=20Gi",
            "autoscaler.ledger.persistence.enabled=true",
            "autoscaler.ledger.persistence.storageClass=shared",
            "gateway.image=example.org/gate@sha256:0",
            "priorityClassName=system-cluster-critical",
            "nodeSelector.pool=control",
            "tolerations[0].key=control",
            "gateway.service.type=LoadBalancer",
            "gateway.service.annotations.example\\.org/kind=inner",
            "gateway.url=https://llm.example.org",
            "gateway.redis.url=rediss://redis.example.org:6380/1",
            "gateway.redis.username=paceline",
            "gateway.redis.passwordSecret=redis-password",
            "gateway.redis.caConfigMap=redis-ca",
            "networkPolicy.enabled=false",
            "logLevel=DEBUG",
        ),
        (),
    ),
}


@dataclass(frozen=True, slots=True)
class Rendered:
    """Everything that one `helm template` prints."""

    documents: tuple[Manifest, ...]

    def of(self, kind: str) -> list[Manifest]:
        """All of a kind."""
        return [document for document in self.documents if document["kind"] == kind]

    def one(self, kind: str, name: str, namespace: str = NAMESPACE) -> Manifest:
        """The only one of this kind, name and namespace."""
        [found] = [item for item in self.of(kind) if place(item) in {(namespace, name), ("", name)}]
        return found

    def pods(self) -> Iterator[tuple[str, Manifest]]:
        """Name and spec of every pod, the test's too."""
        for item in self.of("Deployment"):
            yield item["metadata"]["name"], item["spec"]["template"]["spec"]
        for item in self.of("Pod"):
            yield item["metadata"]["name"], item["spec"]

    def config(self, part: str) -> Any:
        """The file of one of our processes, parsed."""
        return yaml.safe_load(self.one("ConfigMap", f"paceline-{part}")["data"][f"{part}.yaml"])


def place(item: Manifest) -> tuple[str, str]:
    """Namespace and name."""
    return item["metadata"].get("namespace", ""), item["metadata"]["name"]


def helm(*arguments: str, tool: str = "helm") -> subprocess.CompletedProcess[str]:
    """Run a Helm: `tool` is `helm` (4) or `helm3`."""
    command = [str(program("helm", tool)), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)


def options(form: str) -> list[str]:
    """The arguments of a form."""
    values, apis = FORMS[form]
    said = [word for value in values for word in ("--set", value)]
    return [*said, *(word for api in apis for word in ("--api-versions", api))]


@functools.cache
def rendered(form: str = "as it is", tool: str = "helm") -> Rendered:
    """The chart in one of its forms."""
    return template(*options(form), tool=tool)


def template(*arguments: str, tool: str = "helm") -> Rendered:
    """The chart with any arguments."""
    place = ("--namespace", NAMESPACE, "--kube-version", KUBERNETES)  # a Helm built by hand takes it for a very old one
    done = helm("template", "paceline", str(CHART), *place, *arguments, tool=tool)
    assert done.returncode == 0, done.stderr
    return Rendered(tuple(item for item in yaml.safe_load_all(done.stdout) if item))
