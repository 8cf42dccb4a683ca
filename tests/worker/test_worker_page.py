"""docs/worker.md against the configuration it describes: its file is taken, and every setting stands there once."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic.fields import FieldInfo
from tests.every import cases

from paceline_core.config import parse
from paceline_core.errors import InvalidInput
from paceline_core.launch.build import FIELDS
from paceline_workers.config import EngineConfig, WorkerConfig

PAGE = (Path(__file__).parents[2] / "docs" / "worker.md").read_text()
ROWS = dict(re.findall(r"^\| `([a-z_.]+)` \| (.+?) \| .+? \| .*\|$", PAGE, re.MULTILINE))


def settings() -> Iterator[tuple[str, FieldInfo]]:
    yield from WorkerConfig.model_fields.items()
    yield from ((f"engine.{name}", field) for name, field in EngineConfig.model_fields.items())


def written(field: FieldInfo) -> str:
    """A default as the page has it."""
    if field.is_required():
        return "required"
    value: Any = field.get_default(call_default_factory=True, validated_data={})
    if isinstance(value, EngineConfig):
        return "all below"
    return "none" if value is None else f"`{json.dumps(value)}`"


def test_the_file_of_the_page_is_taken() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert parse(WorkerConfig, yaml.safe_load(text), "worker.yaml").engine.dtype == "bf16"


def test_the_page_has_every_setting_and_no_other() -> None:
    assert list(ROWS) == [name for name, _ in settings()]


@cases(("name", "field"), list(settings()))
def test_the_page_has_the_default(name: str, field: FieldInfo) -> None:
    assert ROWS[name] == written(field)


@cases("name", [name for name in FIELDS if name in ROWS and name != "engine.disk_path"])
def test_the_page_has_the_field_of_the_manifest(name: str) -> None:
    (column,) = re.findall(rf"^\| `{name}` \| .+? \| `(.+?)` \|", PAGE, re.MULTILINE)
    assert f"spec.{column}".startswith(FIELDS[name])


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"served_names": []}, "served_names"),
        ({"service": "chat"}, "service"),
        ({"engine": {"batch_window_s": {"interactive": -1}}}, "engine.batch_window_s.interactive"),
        ({"engine": {"batch_window_s": {"interactive": 1e9}}}, "engine.batch_window_s.interactive"),
        ({"engine": {"device": "cpu", "page_tokens": 48}}, "engine.page_tokens"),
        ({"engine": {"max_seqs": 33, "step_tokens": 32}}, "engine.max_seqs"),
        ({"engine": {"max_seqs": 513}}, "engine.max_seqs"),
    ],
)
def test_what_no_worker_can_mean_is_refused_by_name(changed: dict[str, Any], field: str) -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    with pytest.raises(InvalidInput, match=rf"^worker\.yaml: {field}: "):
        parse(WorkerConfig, yaml.safe_load(text) | changed, "worker.yaml")


def test_what_is_refused_is_told_with_the_fix() -> None:
    with pytest.raises(InvalidInput) as pages:
        parse(EngineConfig, {"page_tokens": 48}, "engine")
    sizes = "8, 16, 32, 64, 128, 256, 512, 1024, on GPUs from 16 to 128"
    assert str(pages.value) == f"engine: page_tokens: must be one of {sizes}"
    with pytest.raises(InvalidInput) as requests:
        parse(EngineConfig, {"max_seqs": 33, "step_tokens": 32}, "engine")
    assert str(requests.value) == (
        "engine: max_seqs: 33 running requests need a token each in a step of 32; lower it, or raise step_tokens"
    )


def test_steps_may_be_smaller_than_the_usual_number_of_requests() -> None:
    assert parse(EngineConfig, {"step_tokens": 32}, "engine").max_seqs == 32
