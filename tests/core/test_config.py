from pathlib import Path

import pytest

from paceline_core.config import Config, Listen, from_environment, load
from paceline_core.errors import InvalidInput


class Sample(Config):
    name: str
    listen: Listen = Listen()
    spare: Listen | None = None
    many: tuple[Listen, ...] = ()


def write(folder: Path, text: str) -> Path:
    path = folder / "sample.yaml"
    path.write_text(text)
    return path


def test_a_file_is_read_into_its_model(tmp_path: Path) -> None:
    assert load(Sample, write(tmp_path, "name: a\nlisten: {port: 80}")) == Sample(name="a", listen=Listen(port=80))


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("name: a\nnmae: b", "nmae: unknown setting; did you mean name?"),
        ("name: a\nlisten: {enabled: true}", "listen.enabled: unknown setting; the settings here are host, port"),
        ("name: a\nspare: {enabled: true}", "spare.enabled: unknown setting; the settings here are host, port"),
        ("name: a\nspare: true", "spare: must be a mapping of settings: host, port"),
        ("name: a\nmany: [{enabled: true}]", "many.0.enabled: unknown setting"),
        ("", "name"),
        ("name: a\nlisten: {port: 70000}", "listen.port"),
        ("name: [", "is not YAML"),
        ("- a", "must be a mapping"),
        ("a: b\n\tc: d", "line 2, column 1"),
        ("name: a\n{{ x", "line 2"),
        ("name: \x07", "special characters are not allowed"),
    ],
)
def test_a_wrong_file_is_refused_by_name_and_field(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidInput, match=r"sample\.yaml") as caught:
        load(Sample, write(tmp_path, text))
    assert named in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sample.yaml"
    path.write_bytes(b"name: \xff")
    with pytest.raises(InvalidInput, match=r"is not YAML: .* can't decode byte 0xff"):
        load(Sample, path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="cannot be read"):
        load(Sample, tmp_path / "none.yaml")


def test_the_environment_must_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="PACELINE_CONFIG"):
        from_environment(Sample, {})
    assert from_environment(Sample, {"PACELINE_CONFIG": str(write(tmp_path, "name: a"))}).name == "a"
