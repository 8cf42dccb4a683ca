"""The committed boards and rules are what the code says, and the chart's copies are the same files."""

from pathlib import Path

import pytest
from tools.codegen import drifted
from tools.dashboards import generated_files
from tools.dashboards.__main__ import main

ROOT = Path(__file__).parents[2]
FILES = generated_files()


def test_what_is_committed_is_what_the_code_says() -> None:
    assert drifted(ROOT, FILES) == []


def test_generating_twice_gives_the_same() -> None:
    assert generated_files() == FILES


def test_the_chart_carries_the_same_files() -> None:
    ours = {
        name.removeprefix("dashboards/rules/"): FILES[name] for name in FILES if name.startswith("dashboards/rules")
    }
    charts = {Path(name).name: text for name, text in FILES.items() if name.startswith("charts/paceline/files/rules")}
    assert ours == charts
    boards = {Path(name).name for name in FILES if name.startswith("charts/paceline/files/dashboards")}
    assert boards == {"paceline-service.json", "paceline-control.json", "paceline-tenants.json"}


def test_a_check_lists_what_drifted_writes_nothing_and_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--check", "--root", str(tmp_path)]) == 1
    assert list(tmp_path.iterdir()) == []
    assert main(["--root", str(tmp_path)]) == 0
    assert main(["--check", "--root", str(tmp_path)]) == 0
    changed = tmp_path / "charts/paceline/files/rules/paceline-slo.yaml"
    changed.write_text("groups: []\n")
    (tmp_path / "dashboards" / "old.json").write_text("{}\n")
    capsys.readouterr()
    assert main(["--check", "--root", str(tmp_path)]) == 1
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["charts/paceline/files/rules/paceline-slo.yaml", "dashboards/old.json"]
