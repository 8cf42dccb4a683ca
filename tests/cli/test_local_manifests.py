import contextlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paceline_core.errors import InvalidInput
from paceline_core.kube import ObjectKey
from paceline_core.objects import ManifestError
from paceline_local.manifests import LocalManifests, read_local_manifests
from paceline_workers import demo

EXAMPLES = Path(__file__).parents[2] / "examples"
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
CHAT = """
apiVersion: paceline.dev/v1alpha1
kind: InferenceService
metadata: {name: chat}
spec:
  model: {source: "builtin://demo"}
  pools: [{name: main, accelerator: cpu}]
"""
TENANT = """
apiVersion: paceline.dev/v1alpha1
kind: Tenant
metadata: {name: NAME, namespace: NAMESPACE}
spec: {services: ["*"]}
"""
ROUTE = """
apiVersion: paceline.dev/v1alpha1
kind: InferenceRoute
metadata: {name: public}
spec: {model: m, backends: [{service: chat}, {service: gone}]}
"""


def wishes(tmp_path: Path, *documents: str) -> LocalManifests:
    file = tmp_path / "file.yaml"
    file.write_text("---".join(documents))
    return read_local_manifests([file], NOW)


def tenant(name: str, namespace: str) -> str:
    return TENANT.replace("NAMESPACE", namespace).replace("NAME", name)


def names(found: LocalManifests) -> list[tuple[str, str, str]]:
    return [(d["kind"], d["metadata"]["namespace"], d["metadata"]["name"]) for d in found.documents]


def test_a_service_alone_gets_a_tenant_to_use_it(tmp_path: Path) -> None:
    found = wishes(tmp_path, CHAT)
    assert names(found) == [("InferenceService", "default", "chat"), ("Tenant", "paceline-system", "local")]
    assert list(found.services) == [ObjectKey("default", "chat")]


def test_the_users_own_local_tenant_is_left_alone(tmp_path: Path) -> None:
    found = wishes(tmp_path, CHAT, tenant("local", "paceline-system"))
    assert names(found).count(("Tenant", "paceline-system", "local")) == 1


def test_objects_get_the_metadata_of_a_server(tmp_path: Path) -> None:
    metadata = wishes(tmp_path, CHAT).documents[0]["metadata"]
    assert metadata["creationTimestamp"] == "2026-01-31T12:00:00Z"
    assert metadata["generation"] == 1
    assert len({d["metadata"]["uid"] for d in wishes(tmp_path, CHAT).documents}) == 2


def test_a_route_to_a_service_that_is_not_there_is_noted(tmp_path: Path) -> None:
    found = wishes(tmp_path, CHAT, ROUTE)
    (note,) = found.notes
    assert "InferenceRoute public" in note
    assert "spec.backends[1]" in note
    assert "default/gone" in note


def test_a_tenant_elsewhere_is_kept_and_noted(tmp_path: Path) -> None:
    found = wishes(tmp_path, CHAT, tenant("team", "default"))
    (note,) = found.notes
    assert "Tenant team" in note
    assert "paceline-system" in note


def test_a_file_without_a_service_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"file\.yaml: holds no InferenceService"):
        wishes(tmp_path, tenant("team", "paceline-system"))


def test_an_object_that_stands_in_two_files_is_refused(tmp_path: Path) -> None:
    files = [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    for file in files:
        file.write_text(CHAT)
    with pytest.raises(ManifestError, match="stands in two files"):
        read_local_manifests(files, NOW)


def test_faults_of_all_files_and_what_is_not_served_are_told_together(tmp_path: Path) -> None:
    one, two = tmp_path / "one.yaml", tmp_path / "two.yaml"
    one.write_text(CHAT + "  colour: red\n")
    two.write_text(CHAT.replace("chat", "code") + "  engine: {speculative: {method: ngram}}\n---\nkind: Pod\n")
    with pytest.raises(ManifestError) as refused:
        read_local_manifests([one, two], NOW)
    told = str(refused.value)
    assert [word in told for word in ("spec.colour", "spec.engine.speculative", "(Pod): kind")] == [True] * 3


def test_a_wish_for_a_later_version_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(
        ManifestError, match=r"file\.yaml, document 1 \(InferenceService chat\): spec\.engine\.speculative"
    ):
        wishes(tmp_path, CHAT + "  engine: {speculative: {method: ngram}}\n")


def test_a_variable_from_a_secret_is_refused_in_local_mode(tmp_path: Path) -> None:
    env = "  runtime: {env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}}}]}\n"
    with pytest.raises(ManifestError, match=r"spec\.runtime\.env\[0\]\.valueFrom: local mode has no Secrets"):
        wishes(tmp_path, CHAT + env)


def test_a_list_of_blank_words_is_refused_before_a_worker_would(tmp_path: Path) -> None:
    filters = '  filters: [{name: words, stage: output, config: {words: " , "}}]\n'
    with pytest.raises(ManifestError, match=r"spec\.filters\[0\]\.config: filter words needs at least one word"):
        wishes(tmp_path, CHAT + filters)


def test_more_context_than_the_model_has_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    wishes(tmp_path, CHAT + "  engine: {maxModelLen: 2048}\n")
    with pytest.raises(ManifestError, match=r"spec\.engine\.maxModelLen: 4096 is over the model's context of 2048"):
        wishes(tmp_path, CHAT + "  engine: {maxModelLen: 4096}\n")


@pytest.mark.parametrize(
    ("config", "judged"), [({}, True), ({"rope_scaling": {"factor": 4.0}}, False), ({"model_type": "gpt2"}, False)]
)
def test_the_context_of_a_folder_is_judged_where_it_can_be_read(
    tmp_path: Path, config: dict[str, Any], judged: bool
) -> None:
    own = json.loads((demo.FOLDER / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(own | config))
    text = CHAT.replace("builtin://demo", f"file://{tmp_path}") + "  engine: {maxModelLen: 4096}\n"
    with pytest.raises(ManifestError) if judged else contextlib.nullcontext():
        wishes(tmp_path, text)


def test_more_host_memory_than_the_machine_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"kvCache\.hostOffloadBytes: \d+ MiB are more than this machine's memory"):
        wishes(tmp_path, CHAT + "  engine: {kvCache: {hostOffloadBytes: 63Ti}}\n")


def test_an_unknown_field_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=r"spec\.modle"):
        wishes(tmp_path, CHAT.replace("model:", "modle:"))


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.name)
def test_every_example_can_be_served_here(file: Path) -> None:
    found = read_local_manifests([file], NOW)
    assert found.services
    assert found.notes == ()
