from pathlib import Path

import pytest
import yaml
from tools.codegen import drifted, generated_files, write
from tools.codegen.__main__ import main

from paceline_core.errors import ERRORS
from paceline_core.objects import KINDS
from paceline_core.objects.crd import crd
from paceline_core.objects.rules import RULES
from paceline_core.registry import METRICS

ROOT = Path(__file__).parents[3]


def test_what_is_committed_is_what_the_code_says() -> None:
    assert drifted(ROOT, generated_files()) == []


def test_generating_twice_gives_the_same() -> None:
    assert generated_files() == generated_files()


def test_the_crds_are_yaml_of_the_definitions() -> None:
    files = {name: text for name, text in generated_files().items() if name.startswith("crds/")}
    documents = [yaml.safe_load(text) for text in files.values()]
    assert documents == [crd(kind) for kind in KINDS.values()]
    assert all("&id" not in text for text in files.values())


def test_a_check_lists_what_drifted_and_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--root", str(tmp_path)]) == 0
    (tmp_path / "crds" / "tenants.paceline.dev.yaml").write_text("changed by hand\n")
    (tmp_path / "docs" / "reference" / "errors.md").unlink()
    (tmp_path / "crds" / "old.yaml").write_text("no longer generated\n")
    capsys.readouterr()
    assert main(["--check", "--root", str(tmp_path)]) == 1
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["crds/old.yaml", "crds/tenants.paceline.dev.yaml", "docs/reference/errors.md"]


def test_a_check_writes_nothing(tmp_path: Path) -> None:
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []


def test_writing_touches_only_what_differs(tmp_path: Path) -> None:
    wanted = {"a/x.md": "one\n", "a/y.md": "two\n"}
    assert write(tmp_path, wanted) == ["a/x.md", "a/y.md"]
    assert write(tmp_path, {**wanted, "a/y.md": "three\n"}) == ["a/y.md"]
    assert drifted(tmp_path, {**wanted, "a/y.md": "three\n"}) == []


def test_the_reference_has_every_metric_every_error_and_every_rule() -> None:
    pages = generated_files()
    assert all(f"`{name}`" in pages["docs/reference/metrics.md"] for name in METRICS)
    assert all(f"`{code}`" in pages["docs/reference/errors.md"] for code in ERRORS)
    for rule in RULES:
        page = pages[f"docs/reference/{rule.kind.lower()}.md"]
        assert f"`{rule.path or rule.kind}{rule.field}`" in page


def test_no_table_cell_breaks_its_table() -> None:
    for name, text in generated_files().items():
        if name.endswith(".md"):
            rows = [line.replace("\\|", "") for line in text.splitlines() if line.startswith("|")]
            tables = {line.count("|") for line in rows}
            assert tables, name
            assert len(tables) <= 2, name
