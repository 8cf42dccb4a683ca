"""Operator processes beside a cluster, each with the rights of the chart's own role: a kubeconfig of its account.

The user in the audit log is that account, so a test counts exactly what the operator wrote; Leases are left out of
every count, since they are renewed for ever.
"""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from tests.cluster.forks import Fork, fork_operator
from tests.cluster.harness.audit import Write, service_account
from tests.cluster.harness.commands import CommandFailed
from tests.cluster.harness.workbench import Workbench

ROOT = Path(__file__).parents[2]
ACCOUNT = "paceline-operator"
LIMIT_S = 60.0
READY_S = 40.0


def await_true(what: str, holds: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Ask until it holds; fail with what was waited for."""
    end = time.monotonic() + limit_s
    while not holds():
        if time.monotonic() > end:
            raise AssertionError(f"not within {limit_s:.0f} s: {what}")
        time.sleep(0.1)


@dataclass
class Home:
    """An installation of the operator: its namespace, its account, its CRDs, a folder for files."""

    bench: Workbench
    namespace: str
    folder: Path
    watched: tuple[str, ...] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: iter(range(10_000)))

    @property
    def user(self) -> str:
        """The operator in the audit log."""
        return service_account(self.namespace, ACCOUNT)

    def writes(self, since: int) -> list[Write]:
        """What operators asked to be written after a mark, Leases apart."""
        return [write for write in self.bench.audit.writes(since, user=self.user) if write.resource != "leases"]

    @contextmanager
    def operator(self, name: str = "one", *, dies_after: int = 0, **extra: str) -> Iterator["Running"]:
        """A running operator, ended at the end whatever happens."""
        running = self.start(name, dies_after=dies_after, **extra)
        try:
            yield running
        finally:
            running.kill()

    def start(self, name: str, *, dies_after: int = 0, **extra: str) -> "Running":
        """Start a process; it may not be ready yet. It dies after its n-th write, if that is given."""
        number = next(self._numbers)
        config, log = self.folder / f"operator-{number}.yaml", self.folder / f"operator-{number}.log"
        config.write_text(yaml.safe_dump(self._config(name)))
        log.touch()
        return Running(fork_operator(log, {"PACELINE_CONFIG": str(config), **extra}, dies_after), log)

    def _config(self, name: str) -> dict[str, Any]:
        return {
            "name": name,
            "namespace": self.namespace,
            "cluster": {"kubeconfig": str(self._kubeconfig()), "namespaces": list(self.watched)},
            "listen": {"port": 0},
            "endpoint": "http://gateway.example",
            "worker": {"image": "example/worker:1"},
            "requests_per_second": 500,
            "lease": {"ttl_s": 6},
            **self.settings,
        }

    def _kubeconfig(self) -> Path:
        path = self.folder / "operator.kubeconfig"
        if not path.exists():
            token = self.bench.kubectl.within(self.namespace)("create", "token", ACCOUNT).strip()
            made = yaml.safe_load(self.bench.kubeconfig.read_text())
            made["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in made["users"]]
            path.write_text(yaml.safe_dump(made))
        return path


@dataclass
class Running:
    """One operator process and its log."""

    process: Fork
    log: Path

    @property
    def lines(self) -> str:
        """All it said."""
        return self.log.read_text()

    def url(self, limit_s: float = READY_S) -> str:
        """Its port, from its first line."""
        await_true(
            "the operator listens", lambda: '"listening"' in self.lines or self.process.poll() is not None, limit_s
        )
        line = next((line for line in self.lines.splitlines() if '"listening"' in line), None)
        assert line is not None, self.lines
        return "http://" + str(yaml.safe_load(line)["address"])

    def await_ready(self) -> "Running":
        """Wait until everything is listed."""
        url = self.url()
        await_true("the operator is ready", lambda: httpx.get(f"{url}/readyz").status_code == 200, READY_S)
        return self

    def value(self, metric: str) -> float:
        """A metric without labels."""
        for line in httpx.get(f"{self.url()}/metrics").text.splitlines():
            if line.startswith(f"{metric} "):
                return float(line.split()[1])
        raise AssertionError(f"no {metric}")

    def await_calm(self) -> "Running":
        """Wait until it is ready and its queue is empty, twice in a row."""
        self.await_ready()
        for _ in range(2):
            await_true("the queue is empty", lambda: self.value("paceline_operator_queue_depth") == 0, LIMIT_S)
            time.sleep(0.3)
        return self

    def stop(self, limit_s: float = 15.0) -> int:
        """SIGTERM; its exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(limit_s)

    def kill(self) -> None:
        """SIGKILL, if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)


@contextmanager
def home(bench: Workbench, folder: Path) -> Iterator[Home]:
    """An installation's role, account and CRDs, as the chart renders them, in a namespace of its own."""
    crds = "\n---\n".join(path.read_text() for path in sorted((ROOT / "crds").glob("*.yaml")))
    bench.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", manifest=crds)
    names = [f"crd/{path.stem}" for path in sorted((ROOT / "crds").glob("*.yaml"))]
    bench.kubectl("wait", "--for=condition=Established", "--timeout=30s", *names)
    with bench.namespace() as namespace:
        role = bench.helm()(
            "template", "paceline", str(ROOT / "charts/paceline"), "-n", namespace, "-s", "templates/operator/rbac.yaml"
        )
        bench.kubectl("apply", "--filename=-", manifest=role)
        try:
            yield Home(bench, namespace, folder)
        finally:
            _remove(bench, namespace)


def _remove(bench: Workbench, namespace: str) -> None:
    name = f"{namespace}:{ACCOUNT}"
    try:
        bench.kubectl("delete", "clusterrole,clusterrolebinding", name, "--ignore-not-found")
    except CommandFailed:
        bench.kubectl("get", "clusterrole", limit_s=10)


def service(name: str, namespace: str, **spec: Any) -> dict[str, Any]:
    """An InferenceService with one pool of two."""
    base = {"model": {"source": "builtin://demo", "servedName": f"{namespace}-{name}"}, "pools": [pool("main")]}
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "paceline.dev/v1alpha1",
        "kind": "InferenceService",
        "metadata": metadata,
        "spec": base | spec,
    }


def pool(name: str, least: int = 2) -> dict[str, Any]:
    """One pool."""
    return {"name": name, "accelerator": "cpu", "gpusPerReplica": 0, "replicas": {"min": least, "max": 4}}


def children(bench: Workbench, namespace: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Everything of ours in a namespace, by kind and name."""
    kinds = "serviceaccount,configmap,networkpolicy,service,poddisruptionbudget,deployment"
    found = bench.kubectl.within(namespace).json("get", kinds, "--selector=app.kubernetes.io/managed-by=paceline")
    return {(item["kind"], item["metadata"]["name"]): item for item in found["items"]}
