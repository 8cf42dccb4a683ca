"""Starts a cluster part by part in one network namespace, waits for each with a limit, and always ends it.

`with started(Options(...)) as machine` is the way in. What needs nothing of the API server starts beside it; a part
that ends while it is waited for fails the start at once, with its last lines.
"""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
from tests.cluster.harness import controlplane, fake, node
from tests.cluster.harness.credentials import ADMIN, NODE, make_credentials
from tests.cluster.harness.forwarding import open_forwarding
from tests.cluster.harness.images import write_image
from tests.cluster.harness.machine import READY_LIMIT_S, Machine, Options
from tests.cluster.harness.parts import Part, wait_until
from tests.cluster.harness.runs import Run, open_run
from tests.cluster.harness.space import NODE_IP, open_space

_REAL = f"kubernetes.io/hostname={NODE}"


@contextmanager
def started(options: Options) -> Iterator[Machine]:
    """A cluster for the length of a `with`; it is ready inside and gone after, whatever happens."""
    if os.geteuid():
        raise PermissionError("a cluster needs root: it makes network and mount namespaces and runs containers")
    owned = open_run()
    parts: dict[str, Part] = {}
    try:
        machine = _lay_out(owned.run, options, parts)
        _start(machine)
        yield machine
    finally:
        owned.end()
        for part in parts.values():
            part.kill()


def _lay_out(run: Run, options: Options, parts: dict[str, Part]) -> Machine:
    (run.folder / "logs").mkdir()
    space = open_space(run)
    parts["holder"] = space.holder
    credentials = make_credentials(run.folder / "credentials")
    return Machine(run, options, space, open_forwarding(space, run), credentials, parts)


def _start(machine: Machine) -> None:
    raised = machine.options.raised_limits
    if machine.options.real_node:
        machine.start_inside("containerd", *node.containerd(machine.run), namespaces=("net", "mount"))
    machine.start_inside("etcd", *controlplane.etcd(machine.run))
    machine.start_inside("kube-apiserver", *controlplane.api_server(machine.run, machine.credentials))
    machine.credentials.kubeconfig(ADMIN, machine.server).rename(machine.kubeconfig)
    machine.await_api()
    argv = controlplane.controller_manager(machine.credentials, raised=raised)
    machine.start_inside("kube-controller-manager", *argv)
    if machine.options.schedules:
        machine.start_inside("kube-scheduler", *controlplane.scheduler(machine.credentials, raised=raised))
    if machine.options.real_node:
        _start_node(machine)
    if machine.options.kwok_nodes:
        _start_fake_nodes(machine)


def _start_node(machine: Machine) -> None:
    both = ("net", "mount")
    _load_image(machine)
    machine.start_inside("kubelet", *node.kubelet(machine.run, machine.credentials), namespaces=both)
    machine.start_inside("kube-proxy", *node.kube_proxy(machine.run, machine.credentials), namespaces=both)
    machine.start_inside("coredns", *node.coredns(machine.run, machine.credentials))
    with machine.api() as api:
        _await(machine, "kubelet", "the node is Ready", lambda: _ready_nodes(api, _REAL) == 1)
    _await(machine, "kube-proxy", "Services work", lambda: _says_ok(machine, node.PROXY_READY_PORT, "healthz"))
    _await(machine, "coredns", "names are answered", lambda: _says_ok(machine, node.DNS_READY_PORT, "ready"))


def _start_fake_nodes(machine: Machine) -> None:
    count = machine.options.kwok_nodes
    machine.start_inside("kwok", *fake.kwok(machine.credentials))
    with machine.api() as api:
        for number in range(count):
            api.post("/api/v1/nodes", json=fake.node(number, alone=not machine.options.real_node)).raise_for_status()
        _await(machine, "kwok", f"{count} fake nodes are Ready", lambda: _ready_nodes(api, fake.LABEL) == count)


def _await(machine: Machine, part: str, what: str, ready: Callable[[], bool]) -> None:
    wait_until(what, ready, [machine.parts[part], machine.parts["kube-apiserver"]], READY_LIMIT_S)


def _load_image(machine: Machine) -> None:
    archive = machine.run.folder / "image.tar"
    write_image(archive, machine.run)
    argv = [*machine.space.enter("net", "mount"), *node.load_image(archive)]

    def loaded() -> bool:
        return subprocess.run(argv, capture_output=True, check=False, timeout=READY_LIMIT_S).returncode == 0

    _await(machine, "containerd", "containerd has the image", loaded)


def _ready_nodes(api: httpx.Client, selector: str) -> int:
    nodes = api.get("/api/v1/nodes", params={"labelSelector": selector}).raise_for_status().json()["items"]
    conditions = [each for node in nodes for each in node["status"].get("conditions", [])]
    return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def _says_ok(machine: Machine, port: int, path: str) -> bool:
    url = f"http://127.0.0.1:{machine.forward(NODE_IP, port)}/{path}"
    try:
        return httpx.get(url, timeout=5, trust_env=False).status_code == 200
    except httpx.TransportError:
        return False
