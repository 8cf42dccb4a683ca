"""The stories of `examples/simulate`: their traces are what the script makes, and every command of the page runs."""

import gzip
import re
import shlex
from pathlib import Path

import pytest
from examples.simulate.make_traces import HERE, table, traces
from typer.testing import CliRunner

from paceline_cli.simulate.command import app

ROOT = Path(__file__).parents[2]
PAGE = (HERE / "README.md").read_text()
COMMAND = ".venv/bin/paceline simulate "
COMMANDS = [line.removeprefix(COMMAND) for line in PAGE.splitlines() if line.startswith(COMMAND)]
SHORT = ("--span", "200s", "--policy", "static:6", "--seeds", "1")
"""The last of an option counts."""


def test_the_synthetic_traces_are_those_that_the_script_makes() -> None:
    for name, requests in traces().items():
        assert gzip.decompress((HERE / name).read_bytes()).decode() == table(requests)


def test_there_are_five_stories_each_with_a_command() -> None:
    stories = re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:6]
    assert all(f"\n{COMMAND}" in story for story in stories)
    assert sum(path.stat().st_size for path in HERE.iterdir()) < 1_000_000


@pytest.mark.real
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_page_runs(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(app, [*shlex.split(command), *SHORT])
    assert result.exit_code == 0, result.output
    assert "static:6" in result.output
