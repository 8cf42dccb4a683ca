from pathlib import Path

import pytest
from tests.every import cases

from paceline_core.errors import InvalidInput
from paceline_core.manifests import FILE_LIMIT, ManifestFile, ParsedManifest, load_manifests, survey
from paceline_core.objects import InferenceService, ManifestError, resolve


def sound(found: ManifestFile) -> list[ParsedManifest]:
    if found.faults:
        raise ManifestError(found.faults)
    return found.manifests


def read_manifests(path: Path) -> list[ParsedManifest]:
    return sound(load_manifests(path))


def parse_manifests(text: str, name: str) -> list[ParsedManifest]:
    return sound(survey(text, name))


EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.yaml"))
HEAD = "apiVersion: paceline.dev/v1alpha1\nkind: Tenant\nmetadata: {name: local}\n"
TENANT = HEAD + 'spec: {services: ["*"]}\n'


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_every_example_is_taken_and_resolves(path: Path) -> None:
    services = [manifest.found for manifest in read_manifests(path) if isinstance(manifest.found, InferenceService)]
    assert services
    for service in services:
        assert resolve(service).targets


def test_the_chat_example_is_a_service_a_tenant_and_a_route() -> None:
    (path,) = [path for path in EXAMPLES if path.name == "chat.yaml"]
    assert [manifest.found.kind for manifest in read_manifests(path)] == [
        "InferenceService",
        "Tenant",
        "InferenceRoute",
    ]


def test_a_fault_names_file_document_and_field() -> None:
    text = f"{TENANT}---\n{HEAD.replace('local', 'other')}spec: {{services: ['*'], weight: heavy}}\n"
    with pytest.raises(ManifestError) as refused:
        parse_manifests(text, "examples/chat.yaml")
    assert str(refused.value) == (
        "examples/chat.yaml, document 2 (Tenant other): spec.weight: must be a whole number, not the text 'heavy'"
    )


def test_the_faults_of_all_documents_are_told_at_once() -> None:
    with pytest.raises(ManifestError) as refused:
        parse_manifests("- 1\n---\nkind: Pod\n---\n" + TENANT, "f")
    assert [problem.field for problem in refused.value.problems] == ["f, document 1", "f, document 2 (Pod): kind"]


BOMB = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)


def test_a_word_that_yaml_reads_as_no_text_is_told_as_what_it_reads_and_never_in_pythons_words() -> None:
    true, false = ("YAML reads yes, on, y and true so", "YAML reads no, off, n and false so")
    nothing, fix = "YAML reads null, ~ and an empty value so", "write text in quotes"
    table = {
        "metadata: {name: local, labels: {team: yes}}": (
            f"f, document 1 (Tenant local): metadata.labels[team]: must be a string, not true; {true}: {fix}"
        ),
        "metadata: {name: local, labels: {team: null}}": (
            f"f, document 1 (Tenant local): metadata.labels[team]: must be a string, not nothing; {nothing}: {fix}"
        ),
        "metadata: {name: off}": f"f, document 1 (Tenant): metadata.name: must be a string, not false; {false}: {fix}",
        "metadata: {name: ~}": (
            f"f, document 1 (Tenant): metadata.name: must be a string, not nothing; {nothing}: {fix}"
        ),
        "metadata: {name: local, labels: {yes: a}}": (
            "f: is not YAML at line 3: the key yes is not text; write it in quotes, since YAML reads it as true"
        ),
        "metadata: {name: local, labels: {null: a}}": (
            "f: is not YAML at line 3: the key null is not text; write it in quotes, since YAML reads it as nothing"
        ),
        "metadata: {name: local, labels: {1e3: a}}": (
            "f: is not YAML at line 3: the key 1e3 is not text; write it in quotes, since YAML reads it as a number"
        ),
    }
    for line, told in table.items():
        with pytest.raises(ManifestError) as refused:
            parse_manifests(TENANT.replace("metadata: {name: local}", line), "f")
        assert str(refused.value) == told
    kinds = "InferenceService, Tenant, InferenceRoute, AcceleratorProfile"
    for text, told in (
        ("kind: yes", f"f, document 1: kind: must be one of {kinds}, not true; {true}: {fix}"),
        (TENANT.replace("paceline.dev/v1alpha1", "no"), "apiVersion: must be a string, not false; write paceline.dev"),
        (
            TENANT.replace("spec: {", "spec: {onStoreFailure: on, "),
            f"must be one of open, closed, not true; {true}: {fix}",
        ),
    ):
        with pytest.raises(ManifestError) as refused:
            parse_manifests(text, "f")
        assert told in str(refused.value)
        assert "True" not in str(refused.value)


@cases(
    ("text", "told"),
    [
        (BOMB, "at line 1: holds more than 100000 values, aliases counted; write fewer"),
        ("a: &a {b: *a}", "at line 1: an alias stands within what it stands for; write it out"),
        ("a: .inf", "at line 1: .inf cannot be read as what it seems to be; write it in quotes"),
        ("a: 1\n<<: {a: 2}", "at line 1: << stands behind a, which it would overwrite; write << first"),
        ("a: !!int x", "at line 1: x cannot be read as what it seems to be; write it in quotes"),
        ("a: !!bool x", "at line 1: x cannot be read as what it seems to be; write it in quotes"),
        ('a: "\\ud800"', "at line 1: '\\ud800' is no text that can be written; leave it out"),
        ("a: !!set {b}", "at line 1: the tag !!set is not for manifests; leave it out"),
        ("a: !!binary aGk=", "at line 1: the tag !!binary is not for manifests; leave it out"),
        (
            "a: !python/object:os.system {}",
            "at line 1: the tag !python/object:os.system is not for manifests; leave it out",
        ),
        ("? [a]\n: 1", "at line 1: a key is not text; write it in quotes"),
        ("? \n: 1", "at line 1: an empty key is not text; write it in quotes"),
    ],
)
def test_what_json_cannot_say_is_refused_at_its_line(text: str, told: str) -> None:
    with pytest.raises(ManifestError) as refused:
        parse_manifests(text, "f")
    assert str(refused.value) == f"f: is not YAML {told}"


def test_long_and_unprintable_words_stay_in_one_line() -> None:
    text = f"{HEAD}spec: {{services: ['*'], onStoreFailure: {'x' * 900}, \"a\\n\\e[31m\": 1}}\n"
    with pytest.raises(ManifestError) as refused:
        parse_manifests(text.replace("local", "l" * 900), "f")
    for line in str(refused.value).split("\n"):
        assert line.isprintable()
        assert line.startswith(f"f, document 1 (Tenant {'l' * 39}…): ")
        assert len(line) < 250
    assert "spec.a\\n\\x1b[31m: unknown field" in str(refused.value)


def test_a_document_without_kind_or_version_is_told_what_to_write() -> None:
    with pytest.raises(
        ManifestError, match=r"kind: is required; write InferenceService, Tenant, InferenceRoute or Acc"
    ):
        parse_manifests("apiVersion: paceline.dev/v1alpha1", "f")
    with pytest.raises(ManifestError, match=r"apiVersion: is required; write paceline.dev/v1alpha1"):
        parse_manifests(TENANT.partition("\n")[2], "f")


def test_a_pipe_is_read_and_one_without_end_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is over 4 MiB, too large for a manifest"):
        read_manifests(Path("/dev/zero"))


def test_where_a_text_ends_to_be_yaml_the_faults_before_are_told_too() -> None:
    with pytest.raises(ManifestError) as refused:
        parse_manifests(f"kind: Pod\n---\n{TENANT}---\na: [1", "f")
    assert [problem.field for problem in refused.value.problems] == ["f, document 1 (Pod): kind", "f"]
    assert refused.value.problems[1].message.startswith("is not YAML at line ")


def test_two_objects_of_one_name_are_refused_also_where_one_has_other_faults() -> None:
    with pytest.raises(ManifestError) as refused:
        parse_manifests(f"{TENANT}---\n{TENANT}colour: red\n", "f")
    assert [problem.field.partition(": ")[2] for problem in refused.value.problems] == ["colour", "metadata.name"]


def test_a_name_may_stand_in_two_namespaces() -> None:
    other = TENANT.replace("name: local", "name: local, namespace: there")
    assert len(parse_manifests(f"{TENANT}---\n{other}", "f")) == 2


def test_two_objects_of_one_name_are_refused() -> None:
    with pytest.raises(
        ManifestError, match=r"document 2 \(Tenant local\): metadata.name: stands already in f, document 1"
    ):
        parse_manifests(f"{TENANT}---\n{TENANT}", "f")


def test_empty_documents_count_but_say_nothing() -> None:
    (manifest,) = parse_manifests(f"---\n---\n{TENANT}", "f")
    assert manifest.context == "f, document 2 (Tenant local)"


@cases(
    ("text", "message"),
    [
        ("", "holds no object"),
        ("a: b: c", "is not YAML at line 1"),
        ("a: [1", "is not YAML at line 1"),
        ("x: 1\non: 2", "is not YAML at line 2: the key on is not text; write it in quotes"),
        ("1: x", "the key 1 is not text"),
        ("a: 1\nb: 2\na: 3", "is not YAML at line 3: a stands twice in one map"),
        ("a: \x00", "is not YAML"),
        ("a: !!python/object:os.system {}", "is not YAML at line 1"),
        ("a: *nowhere", "is not YAML at line 1"),
        ("[" * 3000, "is nested too deeply"),
        ("kind: Tenant\napiVersion: paceline.dev/v1alpha1\nspec: &a\n  b: *a\n", "an alias stands within"),
    ],
)
def test_a_text_that_is_no_manifest_is_refused_with_the_place(text: str, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        parse_manifests(text, "f.yaml")


def test_merge_keys_and_anchors_mean_what_they_mean_to_kubernetes() -> None:
    text = TENANT.replace("metadata: {name: local}", "metadata: {<<: &m {labels: {a: b}, name: x}, name: local}")
    (manifest,) = parse_manifests(text, "f")
    assert (manifest.found.name, manifest.found.metadata.labels) == ("local", {"a": "b"})


def test_a_date_stays_text() -> None:
    (manifest,) = parse_manifests(TENANT.replace("name: local", "name: local, creationTimestamp: 2026-01-31"), "f")
    assert manifest.found.metadata.creation_timestamp == "2026-01-31"


def test_a_file_that_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="No such file"):
        read_manifests(tmp_path / "none.yaml")
    with pytest.raises(InvalidInput, match="directory"):
        read_manifests(tmp_path)


def test_a_file_of_another_encoding_or_size_is_refused(tmp_path: Path) -> None:
    latin, large = tmp_path / "latin.yaml", tmp_path / "large.yaml"
    latin.write_bytes(b"a: \xe9\n")
    large.write_bytes(b"#" * (FILE_LIMIT + 1))
    with pytest.raises(InvalidInput, match="not text in UTF-8"):
        read_manifests(latin)
    with pytest.raises(InvalidInput, match="over 4 MiB"):
        read_manifests(large)
