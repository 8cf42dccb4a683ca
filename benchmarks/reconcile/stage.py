"""A fresh cluster with fake nodes for each run, the operator's process in it, and what everybody cost.

Processor time is user and system time of the processes of the run: API server, etcd, controller-manager, scheduler,
KWOK, and the operator or the bare client. Requests that write are counted from the API server's audit log.
"""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import yaml
from benchmarks.harness import ROOT
from tests.cluster.harness.audit import AuditLog, service_account
from tests.cluster.harness.commands import Kubectl
from tests.cluster.harness.credentials import ADMIN
from tests.cluster.harness.machine import Machine, Options
from tests.cluster.harness.parts import Part, wait_until
from tests.cluster.harness.start import started

NODES = 10
PHASE_LIMIT_S = 900.0
OPERATOR = "paceline-operator"
NAMESPACE = "paceline-system"
PLANE = ("kube-apiserver", "etcd", "kube-controller-manager", "kube-scheduler", "kwok")
IDENTITY = service_account(NAMESPACE, OPERATOR)


@dataclass(frozen=True, slots=True)
class Phase:
    """What a client phase reported, and the CPU-seconds it took: by part, and its own under `client`."""

    report: dict[str, Any]
    cpu: dict[str, float]

    @property
    def total(self) -> float:
        """CPU-seconds of everybody."""
        return sum(self.cpu.values())


class Stage:
    """One run's cluster; definitions and operator are those of the checkout at `root`."""

    def __init__(self, machine: Machine, root: Path) -> None:
        self.machine = machine
        self._root = root
        self._inside = str(machine.credentials.kubeconfig(ADMIN))
        self._kubectl = Kubectl(machine.kubeconfig)
        self._kubectl("create", "namespace", NAMESPACE)
        self._kubectl("apply", "--server-side", "-f", str(root / "crds"))
        self._kubectl("-n", NAMESPACE, "create", "serviceaccount", OPERATOR)
        binding = ("create", "clusterrolebinding", OPERATOR, "--clusterrole=cluster-admin")
        self._kubectl(*binding, f"--serviceaccount={NAMESPACE}:{OPERATOR}")
        self.phase("prepare", 0)

    def phase(self, name: str, count: int) -> Phase:
        """Carry out a phase of the client inside and meter everybody meanwhile."""
        before = self._cpu()
        argv = [sys.executable, "-m", "benchmarks.reconcile.client", self._inside, name, str(count)]
        spent_before = psutil.Process().cpu_times()
        done = self.machine.inside(*argv, limit_s=PHASE_LIMIT_S)
        if done.returncode:
            raise RuntimeError(f"phase {name} failed:\n{done.stderr[-2000:]}")
        spent = psutil.Process().cpu_times()
        cpu = {part: used - before.get(part, 0.0) for part, used in self._cpu().items()}
        children = spent.children_user + spent.children_system
        cpu["client"] = children - spent_before.children_user - spent_before.children_system
        phase = Phase(json.loads(done.stdout.splitlines()[-1]), cpu)
        sys.stderr.write(f"{name} {count}: {phase.total:.1f} CPU-s\n")
        return phase

    def start_operator(self) -> Part:
        """Start the operator as its own service account and wait until it is ready."""
        folder = self.machine.run.folder
        config = folder / "operator.yaml"
        config.write_text(yaml.safe_dump(self._operator_config(folder)))
        python = str(self._root / ".venv" / "bin" / "python")
        argv = ["env", f"PACELINE_CONFIG={config}", python, "-m", "paceline_operator.main"]
        part = self.machine.start_inside(OPERATOR, *argv)
        wait_until("the operator is ready", self._ready, [part], 30.0)
        return part

    def writes(self, since: int = 0) -> int:
        """The operator's requests that wrote, from a place of the audit log; the renewals of its lease apart."""
        found = AuditLog(self.machine.audit_log).writes(since, user=IDENTITY)
        return sum(write.resource != "leases" for write in found)

    def mark(self) -> int:
        """The present end of the audit log."""
        return AuditLog(self.machine.audit_log).mark()

    def children(self) -> dict[str, int]:
        """How many objects of each child kind there are in all."""
        kinds = ("deployments", "services", "poddisruptionbudgets", "serviceaccounts", "configmaps", "networkpolicies")
        return {kind: len(self._managed(kind)) for kind in kinds}

    def _managed(self, kind: str) -> list[str]:
        words = ("get", kind, "-A", "-l", "app.kubernetes.io/managed-by=paceline", "-o", "name")
        return self._kubectl(*words).split()

    def _operator_config(self, folder: Path) -> dict[str, Any]:
        return {
            "name": "bench",
            "namespace": NAMESPACE,
            "cluster": {"kubeconfig": str(self._kubeconfig(folder))},
            "listen": {"host": "127.0.0.1", "port": 8070},
            "worker": {"image": "localhost/paceline:bench"},
            "requests_per_second": 200,
            "burst": 400,
            "endpoint": f"http://paceline-gateway.{NAMESPACE}.svc/v1",
        }

    def _kubeconfig(self, folder: Path) -> Path:
        token = self._kubectl("-n", NAMESPACE, "create", "token", OPERATOR, "--duration=4h").strip()
        config = json.loads(Path(self._inside).read_text())
        config["users"][0]["user"] = {"token": token}
        path = folder / "operator.kubeconfig"
        path.write_text(json.dumps(config))
        path.chmod(0o600)
        return path

    def _ready(self) -> bool:
        probe = "import urllib.request as u; u.urlopen('http://127.0.0.1:8070/readyz', timeout=2)"
        return self.machine.inside(sys.executable, "-c", probe).returncode == 0

    def _cpu(self) -> dict[str, float]:
        running = {name: part for name, part in self.machine.parts.items() if name in (*PLANE, OPERATOR)}
        return {name: _spent(part) for name, part in running.items() if part.running()}


@contextmanager
def staged(root: Path = ROOT) -> Iterator[Stage]:
    """A fresh cluster; its controller-manager and scheduler have raised client limits."""
    with started(Options(kwok_nodes=NODES, raised_limits=True)) as machine:
        yield Stage(machine, root)


def resident_mb(part: Part) -> float:
    """Resident memory of a process in MB."""
    return psutil.Process(part.pid).memory_info().rss / 1e6


def _spent(part: Part) -> float:
    times = psutil.Process(part.pid).cpu_times()
    return times.user + times.system
