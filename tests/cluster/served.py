"""The four kinds on a real API server: their definitions in force, manifests sent to it, its answers read."""

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import httpx
from tests.cluster.harness.parts import wait_until
from tests.cluster.harness.workbench import Workbench

from paceline_core.kube import ObjectKey
from paceline_core.kube.client.resource import RESOURCES, Resource
from paceline_core.objects import KINDS
from paceline_core.objects.crd import crd

Document = dict[str, Any]
NAMESPACE = "corpus"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPLY = {"content-type": "application/apply-patch+yaml"}
FORCED = {"fieldManager": "corpus", "force": "true"}
ESTABLISHED_LIMIT_S = 20.0
SKIPPED_RULES = "some validation rules were not checked"


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server's no: its HTTP status, and each cause as (field, words)."""

    status: int
    causes: tuple[tuple[str, str], ...]

    @property
    def fields(self) -> set[str]:
        """The fields that are blamed."""
        return {field for field, _ in self.causes}

    def words(self, field: str) -> str:
        """What is said about a field."""
        return "\n".join(words for place, words in self.causes if place == field)


@contextmanager
def serving(bench: Workbench) -> Iterator[httpx.Client]:
    """The administrator's client, with the four definitions established and the namespace of the corpus there."""
    with bench.machine.api() as api:
        for kind in KINDS.values():
            body = crd(kind)
            applied(api, f"{DEFINITIONS}/{body['metadata']['name']}", body)
        for kind in KINDS.values():
            _await_established(api, crd(kind)["metadata"]["name"])
        made_namespace(api, NAMESPACE)
        yield api


def made_namespace(api: httpx.Client, name: str) -> None:
    """There is a namespace of that name."""
    applied(api, f"/api/v1/namespaces/{name}", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})


def applied(api: httpx.Client, path: str, body: Document) -> Document:
    """Server-side apply that must succeed."""
    answer = api.patch(path, params=FORCED, headers=APPLY, json=body)
    assert answer.is_success, answer.text
    found: Document = answer.json()
    return found


def created(api: httpx.Client, document: Document, *, dry: bool = False) -> Document | Refusal:
    """POST: what was stored, or the refusal."""
    resource = RESOURCES[document["kind"]]
    return _answer(api.post(_collection(resource), params=_dry(dry), json=document))


def replaced(api: httpx.Client, stored: Document, document: Document) -> Document | Refusal:
    """PUT over what is stored, without storing it: the update that kubectl apply or edit would send."""
    metadata = {**document["metadata"], "resourceVersion": stored["metadata"]["resourceVersion"]}
    body = {**document, "metadata": metadata}
    return _answer(api.put(path_of(stored), params=_dry(True), json=body))


def status_put(api: httpx.Client, stored: Document, status: Document) -> Document:
    """The status as its owners write it, through the subresource."""
    answer = _answer(api.put(f"{path_of(stored)}/status", json={**stored, "status": status}))
    assert isinstance(answer, dict), answer
    return answer


def got(api: httpx.Client, stored: Document) -> Document:
    """Read it back."""
    answer = _answer(api.get(path_of(stored)))
    assert isinstance(answer, dict), answer
    return answer


def removed(api: httpx.Client, stored: Document) -> None:
    """Delete it."""
    assert api.delete(path_of(stored)).is_success


def placed(document: Document) -> Document:
    """The document where the corpus may lie, without what only a server says of an object."""
    copy = deepcopy(document)
    for name in ("uid", "resourceVersion", "generation", "creationTimestamp"):
        copy["metadata"].pop(name, None)
    if RESOURCES[document["kind"]].namespaced:
        copy["metadata"]["namespace"] = NAMESPACE
    return copy


def _collection(resource: Resource) -> str:
    return resource.collection(NAMESPACE if resource.namespaced else "")


def path_of(stored: Document) -> str:
    metadata = stored["metadata"]
    return RESOURCES[stored["kind"]].path(ObjectKey(metadata.get("namespace", ""), metadata["name"]))


def _dry(dry: bool) -> dict[str, str]:
    return {"dryRun": "All"} if dry else {}


def _answer(answer: httpx.Response) -> Document | Refusal:
    body: Document = answer.json()
    if answer.is_success:
        return body
    causes = [
        (str(cause.get("field", "")), cause.get("message", ""))
        for cause in (body.get("details") or {}).get("causes") or ()
    ]
    said = tuple((field, words) for field, words in causes if SKIPPED_RULES not in words)
    return Refusal(answer.status_code, said or (("", body.get("message", "")),))


def _await_established(api: httpx.Client, name: str) -> None:
    def established() -> bool:
        conditions = api.get(f"{DEFINITIONS}/{name}").json().get("status", {}).get("conditions", [])
        return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)

    wait_until(f"{name} is established", established, [], ESTABLISHED_LIMIT_S)
