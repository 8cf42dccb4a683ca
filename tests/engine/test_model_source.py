"""Model sources: a folder, or a refusal that says what to do."""

from pathlib import Path

import pytest

from paceline_core.errors import InvalidInput
from paceline_workers import demo
from paceline_workers.model_source import locate


def test_the_demo_model_is_in_the_package() -> None:
    assert locate("builtin://demo") == demo.FOLDER


def test_a_file_source_is_its_path(tmp_path: Path) -> None:
    assert locate(f"file://{tmp_path}") == tmp_path


def test_a_claim_is_found_where_it_is_mounted(tmp_path: Path) -> None:
    (tmp_path / "weights" / "llama" / "8b").mkdir(parents=True)
    assert locate("pvc://weights/llama/8b", tmp_path) == tmp_path / "weights" / "llama" / "8b"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("demo", "is not a source; write builtin://demo"),
        ("builtin://other", "the only built-in model is builtin://demo"),
        ("file://models/x", "the path must be absolute"),
        ("file:///no/such/folder", "/no/such/folder is not a folder here"),
        ("pvc://claim", "names no folder of a claim"),
        ("pvc://claim/../other", "names no folder of a claim"),
        ("pvc:///etc", "names no folder of a claim"),
        ("pvc://claim/x", "mount or copy the model's folder there"),
        ("ftp://host/x", "the scheme ftp:// is unknown"),
        ("hf://org/name", "does not fetch hf:// sources; download the model's folder"),
        ("s3://bucket/x", "does not fetch s3:// sources"),
        ("gs://bucket/x", "does not fetch gs:// sources"),
        ("oci://registry/x", "does not fetch oci:// sources"),
    ],
)
def test_a_source_that_cannot_be_served_is_refused_with_the_fix(source: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput) as caught:
        locate(source, tmp_path)
    assert caught.value.field == "model"
    assert message in caught.value.message
