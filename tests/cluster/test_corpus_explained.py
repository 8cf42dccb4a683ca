"""What kubectl shows of the kinds: every field explained, every column filled."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from tests.cluster.harness.parts import wait_until
from tests.cluster.harness.workbench import Workbench
from tests.cluster.served import NAMESPACE, Document, created, placed, removed, serving, status_put
from tests.core.objects.corpus import valid

from paceline_core.objects import KINDS
from paceline_core.objects.crd import crd
from paceline_core.objects.metadata import Object
from paceline_core.objects.schema import structural, walk

pytestmark = pytest.mark.real

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
STATUS = {
    "workload": {
        "summary": "2/3",
        "model": "builtin://demo",
        "servedName": "chat-7b",
        "pools": [{"name": "main", "ready": 2, "starting": 1}],
        "poolNames": "main",
        "minReplicas": 1,
        "maxReplicas": 4,
        "endpoint": "http://gateway.paceline-system/v1",
    },
    "scaling": {"desired": 3, "promise": "ttft p95 420/500ms", "burn": 0.4, "reason": "demand"},
    "cost": {"perHour": "7.50"},
}


@pytest.fixture(scope="module")
def api(apiserver: Workbench) -> Iterator[httpx.Client]:
    """Publishing follows a definition's establishment by a moment."""
    with serving(apiserver) as client:
        wait_until("the four schemas are published", lambda: KINDS.keys() <= _published(client).keys(), [], 30)
        yield client


@pytest.fixture
def published(api: httpx.Client) -> dict[str, Any]:
    """The schemas that `kubectl explain` reads, by kind."""
    return _published(api)


@pytest.fixture
def chat(api: httpx.Client) -> Iterator[Document]:
    document = placed(valid()["minimal"])
    document["metadata"]["name"] = "columns"
    found = created(api, document)
    assert isinstance(found, dict), found
    status_put(api, found, STATUS)
    yield found
    removed(api, found)


@every_kind
def test_every_field_is_published_with_a_sentence(published: dict[str, Any], kind: type[Object]) -> None:
    sentences = {path: node["description"] for path, node in _fields(published[kind.__name__])}
    assert sentences.keys() == {path for path, _ in _fields(structural(kind))}
    for path, sentence in sentences.items():
        assert re.fullmatch(r"\S.{7,}[.]", sentence), (path, sentence)
        assert "  " not in sentence, (path, sentence)


@every_kind
def test_explain_lists_every_field(apiserver: Workbench, api: httpx.Client, kind: type[Object]) -> None:
    text = apiserver.kubectl("explain", crd(kind)["spec"]["names"]["shortNames"][0], "--recursive")
    shown = set(re.findall(r"^\s+([\w-]+)\t<", text, re.MULTILINE))
    assert {path.rpartition(".")[2].rstrip("[]{}") for path, _ in _fields(structural(kind))} <= shown


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("InferenceService", "spec.classes.interactive.slo.ttft.p95"),
        ("InferenceService", "spec.scaling.policy"),
        ("InferenceService", "status.scaling.burn"),
        ("Tenant", "spec.services"),
        ("InferenceRoute", "spec.degrade.trigger"),
        ("AcceleratorProfile", "spec.memory"),
    ],
)
def test_explain_says_what_a_field_is_for(apiserver: Workbench, api: httpx.Client, name: str, place: str) -> None:
    text = apiserver.kubectl("explain", f"{crd(KINDS[name])['spec']['names']['shortNames'][0]}.{place}")
    sentence = dict(walk(structural(KINDS[name])))[place]["description"]
    assert sentence in " ".join(text.split())


def test_the_columns_of_a_service_show_its_state(apiserver: Workbench, chat: Document) -> None:
    head, line = apiserver.kubectl.within(NAMESPACE)("get", "pisvc", "columns").splitlines()
    assert head.split() == ["NAME", "MODEL", "SERVED", "READY", "DESIRED", "SLO", "BURN", "REASON", "COST/H", "AGE"]
    cells = re.split(r"\s{2,}", line)
    shown = ["columns", "builtin://demo", "chat-7b", "2/3", "3", "ttft p95 420/500ms", "0.4", "demand", "7.50"]
    assert cells[:-1] == shown
    assert re.fullmatch(r"\d+s", cells[-1])
    head, line = apiserver.kubectl.within(NAMESPACE)("get", "pisvc", "columns", "-o", "wide").splitlines()
    assert head.split()[-4:] == ["MIN", "MAX", "POOLS", "ENDPOINT"]
    assert line.split()[-4:] == ["1", "4", "main", "http://gateway.paceline-system/v1"]


def test_all_kinds_are_listed_by_their_category(apiserver: Workbench, chat: Document) -> None:
    assert "inferenceservice.paceline.dev/columns" in apiserver.kubectl.within(NAMESPACE)(
        "get", "paceline", "--output=name"
    )


def _published(api: httpx.Client) -> dict[str, Any]:
    answer = api.get("/openapi/v3/apis/paceline.dev/v1alpha1")
    schemas = answer.json()["components"]["schemas"] if answer.is_success else {}
    return {name.rpartition(".")[2]: schema for name, schema in schemas.items()}


def _fields(schema: Any) -> list[tuple[str, Any]]:
    """Everything that a user can write or read below spec and status, without entries and values of maps."""
    found = [(path, node) for path, node in walk(schema) if path.startswith(("spec", "status"))]
    return [(path, node) for path, node in found if not path.endswith(("[]", "{}"))]
