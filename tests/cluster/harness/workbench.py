"""What a test holds of a cluster: kubectl, helm and the way to what listens there; ours or somebody else's.

On somebody else's cluster (`PACELINE_TEST_KUBECONFIG`) Services and pods are reached by `kubectl port-forward`, and
there is no machine: no audit log, no parts to kill. A test that needs one asks for the fixture `machine` and is
deselected there.
"""

import contextlib
import re
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.cluster.harness.audit import AuditLog
from tests.cluster.harness.commands import CommandFailed, Helm, Kubectl
from tests.cluster.harness.machine import Machine
from tests.cluster.harness.parts import Part, wait_until
from tests.cluster.harness.runs import processes_of
from tests.cluster.harness.tools import program

STORY_LIMIT = 30_000
NAMESPACE_LIMIT_S = 30.0


class NotHere(Exception):
    """Asked of somebody else's cluster what only the harness's own can give."""


@dataclass(frozen=True, slots=True)
class Workbench:
    """A cluster as a test uses it."""

    kubectl: Kubectl
    home: Path
    own: Machine | None
    _doors: dict[str, Part] = field(default_factory=dict)

    @property
    def machine(self) -> Machine:
        """The harness's own cluster."""
        if self.own is None:
            raise NotHere("needs the harness's own cluster; unset PACELINE_TEST_KUBECONFIG")
        return self.own

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig."""
        return self.kubectl.kubeconfig

    @property
    def audit(self) -> AuditLog:
        """The log of every write."""
        return AuditLog(self.machine.audit_log)

    def helm(self, tool: str = "helm") -> Helm:
        """Helm 4, or `helm3`."""
        return Helm(self.kubeconfig, self.home, tool)

    def service(self, namespace: str, name: str, port: int) -> str:
        """The address on this machine's loopback that leads to a Service with a ClusterIP, as `http://127.0.0.1:PORT`."""
        if self.own is None:
            return self._door(namespace, f"service/{name}", port)
        address = self.kubectl.within(namespace).json("get", "service", name)["spec"]["clusterIP"]
        return f"http://127.0.0.1:{self.own.forward(address, port)}"

    def pod(self, namespace: str, name: str, port: int) -> str:
        """The same for one pod, past every Service."""
        if self.own is None:
            return self._door(namespace, f"pod/{name}", port)
        address = self.kubectl.within(namespace).json("get", "pod", name)["status"]["podIP"]
        return f"http://127.0.0.1:{self.own.forward(address, port)}"

    def processes(self, namespace: str, pod: str) -> list[int]:
        """The ids, on this machine, of a pod's processes, to kill one from outside as the kernel would."""
        assert self.machine
        statuses = self.kubectl.within(namespace).json("get", "pod", pod)["status"]["containerStatuses"]
        names = [each["containerID"].removeprefix("containerd://") for each in statuses]
        return [process for name in names for process in processes_of(name)]

    @contextmanager
    def namespace(self, level: str = "restricted") -> Iterator[str]:
        """A namespace of a test's own, held to a level of pod security; its end is asked for and not waited for."""
        name = f"test-{secrets.token_hex(4)}"
        labels = {"pod-security.kubernetes.io/enforce": level}
        self.kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        try:
            # The controller makes the account of a namespace a moment later, and no pod is accepted before.
            limit = f"--timeout={NAMESPACE_LIMIT_S:.0f}s"
            self.kubectl.within(name)("wait", "--for=create", "serviceaccount/default", limit)
            yield name
        finally:
            with contextlib.suppress(CommandFailed, subprocess.TimeoutExpired):
                self.kubectl("delete", "namespace", name, "--wait=false", "--ignore-not-found", limit_s=20)

    def story(self) -> str:
        """What a failed test wants to know: pods, events, the last lines of the parts."""
        told = [self._told("get", "pods", "--all-namespaces", "--output=wide")]
        told += [self._told("get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp")]
        told += [self.own.tails()] if self.own else []
        return "\n".join(text[-STORY_LIMIT // 3 :] for text in told)

    def close(self) -> None:
        """End the port-forwards."""
        for door in self._doors.values():
            door.kill()

    def _told(self, *words: str) -> str:
        try:
            return self.kubectl(*words, limit_s=15)
        except (CommandFailed, subprocess.TimeoutExpired) as problem:
            return str(problem)

    def _door(self, namespace: str, target: str, port: int) -> str:
        argv = [str(program("kubectl", "kubernetes")), f"--kubeconfig={self.kubeconfig}", f"--namespace={namespace}"]
        door = Part(target, [*argv, "port-forward", target, f":{port}"], self.home / f"{secrets.token_hex(4)}.log")
        self._doors[f"{namespace}/{target}:{port}/{len(self._doors)}"] = door
        door.start()
        found = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")
        wait_until(f"{target} is forwarded", lambda: bool(found.search(door.tail())), [door], 30)
        return f"http://127.0.0.1:{found.findall(door.tail())[0]}"
