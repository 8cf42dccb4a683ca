"""`kubectl paceline` as tests call it: in this process, as the administrator or as somebody with few rights."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cluster.harness.audit import service_account
from tests.cluster.harness.images import PACELINE_IMAGE, USER
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import await_true
from tests.cluster.rights import TOLD_S, may, rights_of
from tests.cluster.served import Document
from tests.core.objects.corpus import valid

from paceline_cli.main import plugin

Call = Callable[..., tuple[int, str, str]]


def caller(capsys: pytest.CaptureFixture[str]) -> Call:
    """Arguments in; exit status, output and errors out."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as left:
            plugin(list(arguments))
        out, err = capsys.readouterr()
        code = left.value.code
        return (code if isinstance(code, int) else int(code is not None)), out, err

    return run


def administrator(run: Call, bench: Workbench, namespace: str) -> Call:
    """The same in a test's namespace, which is paceline's own too, and that of its keys."""

    def called(*arguments: str) -> tuple[int, str, str]:
        system = () if arguments[0] in {"status", "pause", "resume"} else ("--system-namespace", namespace)
        keys = ("--key-namespace", namespace) if arguments[0] == "keys" else ()
        place = () if arguments[0] in {"keys", "usage"} else ("-n", namespace)
        return run(*arguments, *place, *system, *keys, "--kubeconfig", str(bench.kubeconfig))

    return called


def service(name: str = "chat", **spec: Any) -> Document:
    document = valid()["minimal"]
    return {**document, "metadata": {"name": name}, "spec": {**document["spec"], **spec}}


def as_user(bench: Workbench, namespace: str, rules: list[dict[str, list[str]]], folder: Path) -> str:
    """The kubeconfig of a ServiceAccount that may do only what the rules say, in one namespace."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "reader"}}
    subject = {"kind": "ServiceAccount", "name": "reader", "namespace": namespace}
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"}
    kubectl = bench.kubectl.within(namespace)
    kubectl.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader"}},
        {**rbac, "kind": "Role", "rules": rules},
        {**rbac, "kind": "RoleBinding", "subjects": [subject], "roleRef": reference},
    )
    _await_rights(bench, namespace, rules)
    config = yaml.safe_load(bench.kubeconfig.read_text())
    config["users"] = [
        {"name": config["users"][0]["name"], "user": {"token": kubectl("create", "token", "reader").strip()}}
    ]
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return str(path)


def _await_rights(bench: Workbench, namespace: str, rules: list[dict[str, list[str]]]) -> None:
    """A role is in force a moment after it is stored."""
    user = service_account(namespace, "reader")
    with bench.machine.api() as api:
        for right in rights_of({"rules": rules}):
            allowed = partial(may, api, user, right.verb, right.group, right.resource, namespace)
            await_true(f"the user may {right.verb} {right.resource}", allowed, TOLD_S)


def restricted_pod(name: str, labels: dict[str, str], source: str, token: str) -> Document:
    """A pod that the restricted level accepts; `token` is in its environment."""
    container = {
        "name": "main",
        "image": PACELINE_IMAGE,
        "command": ["python", "-c", source],
        "env": [{"name": "TOKEN", "value": token}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    security = {"runAsNonRoot": True, "runAsUser": USER, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 1}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}
