"""The pages that a newcomer reads first: what they show is valid, what they name exists."""

import re
import shlex
from pathlib import Path

import pytest
import typer
import yaml

from paceline_cli.bench.command import app as bench
from paceline_cli.main import COMMANDS
from paceline_core.objects import InferenceService, validate

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "docs/architecture.md"]
README = (ROOT / "README.md").read_text()
SCREEN = 50
PATH = re.compile(r"`((?:benchmarks|cli|core|crds|docs|examples|gateway|tests|tools)/[\w./-]*)`")


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def test_the_readme_is_at_most_two_screens() -> None:
    assert len(README.splitlines()) <= 2 * SCREEN


def test_the_service_in_the_readme_is_valid() -> None:
    [block] = blocks(README, "yaml")
    service = validate(yaml.safe_load(block))
    assert isinstance(service, InferenceService)


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / page).read_text())
    local = [link for link in links if not link.startswith("http")]
    assert [link for link in local if not (ROOT / page).parent.joinpath(link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_make_target_exists(page: str) -> None:
    targets = set(re.findall(r"\bmake ([a-z-]+)\b", "\n".join(re.findall(r"`[^`]*`", (ROOT / page).read_text()))))
    known = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets <= known


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_paceline_exists(page: str) -> None:
    named = re.findall(r"`(?:\.venv/bin/)?paceline ([a-z-]+)", (ROOT / page).read_text())
    assert set(named) <= COMMANDS.keys()


@pytest.mark.parametrize("page", PAGES)
def test_every_path_in_backticks_exists(page: str) -> None:
    paths = PATH.findall((ROOT / page).read_text())
    assert [path for path in paths if not (ROOT / path).exists()] == []


def test_the_burst_command_of_the_readme_is_understood() -> None:
    [line] = [line for line in README.splitlines() if "paceline bench -f" in line]
    _, _, *arguments = shlex.split(line)
    context = typer.main.get_command(bench).make_context("bench", arguments)
    assert (ROOT / str(context.params["file"])).exists()
    assert context.params["profile"] == "burst"
