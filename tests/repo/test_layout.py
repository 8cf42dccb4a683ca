"""The shape of the house: what the wheel holds, what may never exist, how large a room may be."""

import re
import subprocess
import sys
import tomllib
import zipfile
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
from tests.every import cases, every

ROOT = Path(__file__).parents[2]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [Path(path) for path in SETTINGS["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]
SOURCES = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
LARGEST_FILE = 400
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
_LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


@pytest.mark.real
def test_the_wheel_holds_exactly_the_packages_of_the_components(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=60)
    [wheel] = tmp_path.glob("*.whl")
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {package.name for package in PACKAGES}


@cases("package", PACKAGES)
def test_a_component_folder_holds_its_package_and_no_loose_module(package: Path) -> None:
    assert list((ROOT / package.parent).glob("*.py")) == []
    assert (ROOT / package / "py.typed").exists()


def test_nothing_shadows_the_standard_operator_module() -> None:
    assert [path for path in ROOT.rglob("operator/__init__.py") if ".venv" not in path.parts] == []


def test_tests_are_no_packages() -> None:
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def test_every_component_is_typed_linted_and_layered() -> None:
    names = {package.name for package in PACKAGES}
    assert names == set(SETTINGS["tool"]["importlinter"]["root_packages"])
    assert {package.parts[0] for package in PACKAGES} == set(SETTINGS["tool"]["hatch"]["build"]["dev-mode-dirs"])


def test_no_module_imports_itself_through_others_not_even_for_a_type() -> None:
    graph = grimp.build_graph(*(package.name for package in PACKAGES))
    TopologicalSorter({name: graph.find_modules_directly_imported_by(name) for name in graph.modules}).prepare()


@every(SOURCES, lambda path: str(path.relative_to(ROOT)))
def test_a_file_is_one_idea(source: Path) -> None:
    assert len(source.read_text().splitlines()) <= LARGEST_FILE


@every(PAGES, lambda path: str(path.relative_to(ROOT)))
def test_a_page_links_to_files_that_exist(page: Path) -> None:
    links = [link for link in _LINK.findall(page.read_text()) if not link.startswith(("http", "mailto"))]
    assert not [link for link in links if not _is_there(page.parent / link)]


def _is_there(target: Path) -> bool:
    """Whether a fresh checkout has it: a directory of bytecode alone is the rest of a package that has moved."""
    if not target.is_dir():
        return target.exists()
    return any(path.is_file() and "__pycache__" not in path.parts for path in target.rglob("*"))
