"""All rights of each part taken away on a real API server until the part says so, then given back: it works again.

How long that takes is no assertion: each pause is bounded by `test_refused_requests`. A watch that stands outlives its
right, so gateway and autoscaler begin without any; the operator works before.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from tests.cluster.harness.audit import service_account
from tests.cluster.harness.workbench import Workbench
from tests.cluster.operators import Home, await_true, children, home, service
from tests.cluster.rights import MENDED_S, TOLD_S, Manifest, Roles, Stage, bound, changed, may

from paceline_core.auth import new_signing_key
from paceline_core.kube import key_namespace_of

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def place(apiserver: Workbench, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    with home(apiserver, tmp_path_factory.mktemp("back")) as made, bound(apiserver, made.namespace):
        yield made


@pytest.fixture
def api(apiserver: Workbench) -> Iterator[httpx.Client]:
    with apiserver.machine.api() as client:
        yield client


@dataclass
class Part:
    """A gateway's or autoscaler's process with the account that the chart gives it, and its log."""

    name: str
    log: Path
    process: "subprocess.Popen[bytes]"

    def url(self) -> str:
        """Its admin port, from its first line."""
        await_true(f"the {self.name} listens", lambda: self._address() is not None or self.process.poll() is not None)
        address = self._address()
        assert address is not None, self.log.read_text()
        return f"http://{address}"

    def get(self, path: str) -> httpx.Response:
        return httpx.get(f"{self.url()}{path}", timeout=10)

    def current(self, kind: str) -> bool:
        """Whether it says that what it knows of a kind is current."""
        metric = f'paceline_{self.name}_watch_synced{{kind="{kind}"}} 1.0'
        return metric in self.get("/metrics").text

    def _address(self) -> str | None:
        found = re.search(r'"(?:admin|address)": "([^"]+)"', self.log.read_text())
        return found[1] if found else None


@contextmanager
def running(place: Home, name: str, **config: Any) -> Iterator[Part]:
    """The part's process, ended at the end whatever happens."""
    folder = place.folder / name
    folder.mkdir()
    token = place.bench.kubectl.within(place.namespace)("create", "token", f"paceline-{name}").strip()
    made = yaml.safe_load(place.bench.kubeconfig.read_text())
    made["users"] = [{"name": entry["name"], "user": {"token": token}} for entry in made["users"]]
    (folder / "kubeconfig").write_text(yaml.safe_dump(made))
    (folder / "signing.key").write_bytes(new_signing_key())
    (folder / "jwks.json").write_text('{"keys": []}')
    body = {
        "cluster": {"kubeconfig": str(folder / "kubeconfig")},
        "namespace": place.namespace,
        "signing_key": str(folder / "signing.key"),
        "listen": {"host": "127.0.0.1", "port": 0},
        **config,
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(body))
    environ = {key: value for key, value in os.environ.items() if not key.startswith("PACELINE_")}
    log = folder / "log"
    with log.open("wb") as out:
        command = [sys.executable, "-m", f"paceline_{name}.main"]
        environ["PACELINE_CONFIG"] = str(folder / "config.yaml")
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=out)
    try:
        yield Part(name, log, process)
    finally:
        process.kill()
        process.wait()


@dataclass
class Taken:
    """Roles of a part whose rules are taken away; `give_back` puts them in force."""

    api: httpx.Client
    user: str
    whole: list[Manifest]

    def give_back(self) -> None:
        for role in self.whole:
            changed(self.api, role, role["rules"])
        await_true("the rights are back", lambda: self.allowed() == len(self.whole), TOLD_S)

    def allowed(self) -> int:
        """Of how many roles the first rule is in force."""
        return sum(self._may(role) for role in self.whole)

    def _may(self, role: Manifest) -> bool:
        rule, namespace = role["rules"][0], role["metadata"].get("namespace", "")
        name = (rule.get("resourceNames") or [""])[0]
        return may(self.api, self.user, rule["verbs"][0], rule["apiGroups"][0], rule["resources"][0], namespace, name)


@contextmanager
def taken(place: Home, api: httpx.Client, part: str) -> Iterator[Taken]:
    """Without a right to anything; all of it is back at the end."""
    account, kubectl = f"paceline-{part}", place.bench.kubectl
    whole = [kubectl.json("get", "clusterrole", f"{place.namespace}:{account}")]
    for namespace in (place.namespace, key_namespace_of(place.namespace)):
        found = kubectl.within(namespace).json("get", "roles")["items"]
        whole += [role for role in found if role["metadata"]["name"] == account]
    made = Taken(api, service_account(place.namespace, account), whole)
    for role in whole:
        changed(api, role, [])
    await_true(f"the {part} has no rights", lambda: made.allowed() == 0, TOLD_S)
    try:
        yield made
    finally:
        made.give_back()


def test_an_operator_that_lost_every_right_leads_and_works_again(place: Home, api: httpx.Client) -> None:
    roles = Roles.read(place)
    with place.bench.namespace() as team, place.operator() as operator:
        operator.await_calm()
        stage = Stage(place, operator, team, api, 0)
        with roles.without(*((right.resource, right.verb) for right in roles.rights)):
            place.bench.kubectl.apply(service("chat", team))
            await_true("it fails for want of a right", lambda: stage.errors("InferenceService") > 0, MENDED_S)
            await_true("it leads no more", lambda: operator.value("paceline_operator_leader") == 0, MENDED_S)
        await_true("it works", lambda: ("Deployment", "chat-main") in children(place.bench, team), MENDED_S)
        await_true("it says so", lambda: stage.condition()[0] == "False", MENDED_S)
        assert operator.process.poll() is None


def test_a_gateway_that_may_read_nothing_reads_everything_when_it_may(place: Home, api: httpx.Client) -> None:
    (place.folder / "jwks.json").write_text('{"keys": []}')
    options = {
        "admin": {"host": "127.0.0.1", "port": 0},
        "key_namespace": key_namespace_of(place.namespace),
        "trust_bundle": str(place.folder / "jwks.json"),
    }
    with taken(place, api, "gateway") as rights, running(place, "gateway", **options) as gateway:
        await_true("it says so", lambda: gateway.get("/readyz").text.count("is forbidden: ") >= 4, MENDED_S)
        rights.give_back()
        await_true("it reads", lambda: all(map(gateway.current, ("Secret", "Tenant", "InferenceService"))), MENDED_S)
        await_true("it is ready", lambda: gateway.get("/readyz").status_code == httpx.codes.OK, MENDED_S)
        lost = [line for line in map(json.loads, gateway.log.read_text().splitlines()) if "lost" in line["message"]]
        assert len(lost) <= 20


def test_an_autoscaler_that_may_do_nothing_takes_the_lease_when_it_may(place: Home, api: httpx.Client) -> None:
    with (
        taken(place, api, "autoscaler") as rights,
        running(place, "autoscaler", gateways=["127.0.0.1:9"]) as autoscaler,
    ):
        await_true("it says so", lambda: "forbidden" in autoscaler.log.read_text(), MENDED_S)
        await_true("it is not ready", lambda: autoscaler.get("/readyz").status_code != httpx.codes.OK, MENDED_S)
        rights.give_back()
        kinds = ("InferenceService", "Pod", "AcceleratorProfile", "Lease")
        await_true("it reads and leads", lambda: all(map(autoscaler.current, kinds)), MENDED_S)
        await_true("it is ready", lambda: autoscaler.get("/readyz").status_code == httpx.codes.OK, MENDED_S)
