"""A Kubernetes of its own for one owner: started part by part in one network namespace, always ended.

`started(Options(...))` is the way in. The owner is outside: `kubeconfig` points at loopback through the forwarder,
so `kubectl`, `helm` and any client work as against a remote cluster, and `forward` leads to whatever listens
inside.
"""

import json
import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

import httpx
from tests.cluster.harness import controlplane
from tests.cluster.harness.credentials import ADMIN, NODE, Credentials
from tests.cluster.harness.forwarding import Forwarding
from tests.cluster.harness.parts import Part, wait_until
from tests.cluster.harness.runs import Run
from tests.cluster.harness.space import NODE_IP, Space, run_inside

READY_LIMIT_S = 60.0


@dataclass(frozen=True, slots=True)
class Options:
    """What a run has beside etcd, API server and controller-manager."""

    real_node: bool = False
    kwok_nodes: int = 0
    raised_limits: bool = False

    @property
    def schedules(self) -> bool:
        """Whether there is any node to put a pod on."""
        return self.real_node or self.kwok_nodes > 0


@dataclass(frozen=True, slots=True)
class Machine:
    """A running cluster."""

    run: Run
    options: Options
    space: Space
    forwarding: Forwarding
    credentials: Credentials
    parts: dict[str, Part]

    @property
    def kubeconfig(self) -> Path:
        """The administrator's way in from this machine."""
        return self.run.folder / "kubeconfig"

    @property
    def audit_log(self) -> Path:
        """The file of every write."""
        return controlplane.audit_path(self.run)

    def forward(self, host: str, port: int) -> int:
        """The port on this machine's loopback that leads to `host:port` inside; `host` is an address."""
        return self.forwarding.port(host, port)

    def inside(self, *argv: str, limit_s: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run a program of this machine in the cluster's network."""
        return run_inside(self.space, self.run, list(argv), limit_s)

    def start_inside(self, name: str, *argv: str, namespaces: tuple[str, ...] = ("net",)) -> Part:
        """Start a program in the cluster's network; it ends with the cluster, or by `part.stop()`."""
        environment = {**self.run.environment(), **controlplane.GO_ENVIRONMENT}
        log = self.run.folder / "logs" / f"{name}.log"
        part = Part(name, [*self.space.enter(*namespaces), *argv], log, environment)
        self.parts[name] = part
        part.start()
        return part

    def api(self) -> httpx.Client:
        """A plain client of the API server, as the administrator."""
        trust = ssl.create_default_context(cafile=self.credentials.file("ca.crt"))
        headers = {"authorization": f"Bearer {self.credentials.tokens[ADMIN]}"}
        return httpx.Client(base_url=self.server, verify=trust, headers=headers, timeout=10, trust_env=False)

    @property
    def server(self) -> str:
        """The API server's address from this machine."""
        return f"https://127.0.0.1:{self.forward(NODE_IP, 6443)}"

    def await_api(self) -> None:
        """Wait until the API server says that it is ready."""
        with self.api() as api:
            watched = [self.parts["etcd"], self.parts["kube-apiserver"]]
            wait_until("the API server is ready", lambda: _answers(api), watched, READY_LIMIT_S)

    def give_gpus(self, count: int, node: str = NODE) -> None:
        """Let a node offer GPUs to the scheduler; nothing checks that they are there."""
        patch = {"status": {"capacity": {"nvidia.com/gpu": str(count)}}}
        kind = {"content-type": "application/strategic-merge-patch+json"}
        with self.api() as api:
            path = f"/api/v1/nodes/{node}/status"
            api.patch(path, content=json.dumps(patch), headers=kind).raise_for_status()

    def tails(self) -> str:
        """The last lines of every part's log."""
        return "\n".join(f"--- {part.name}\n{part.tail(12)}" for part in self.parts.values())


def _answers(api: httpx.Client) -> bool:
    try:
        return api.get("/readyz").status_code == 200
    except httpx.TransportError:
        return False
