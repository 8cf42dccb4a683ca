"""The images' recipes: small, pinned, not root, and holding every package that their process imports."""

import ast
import importlib.metadata
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.chart.rendering import ROOT

FILES = {folder: ROOT / folder / "Dockerfile" for folder in ("operator", "gateway", "autoscaler", "workers")}
INSTALLED = re.compile(r'pip install --no-cache-dir "\.\[([a-z,]+)\]"')
RECIPE = tomllib.loads((ROOT / "pyproject.toml").read_text())
PROJECT, WHEEL = RECIPE["project"], RECIPE["tool"]["hatch"]["build"]["targets"]["wheel"]
ALWAYS, EXTRAS = PROJECT["dependencies"], PROJECT["optional-dependencies"]
CLUSTER = "paceline_core.kube.kubernetes"
LATER = {
    "operator": [],
    "gateway": [CLUSTER],
    "autoscaler": [CLUSTER],
    "workers": ["paceline_workers.engine.__main__", "paceline_workers.engine.backends.gpu.backend"],
}
LOADED = """
import json, sys, {modules}
ours = [module for name, module in sys.modules.items() if name.startswith("paceline_")]
print(json.dumps([module.__file__ for module in ours if module.__file__]))
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction of a Dockerfile, its continued lines joined."""

    word: str
    rest: str


def steps(path: Path) -> list[Step]:
    """A Dockerfile's instructions in order."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    joined = "\n".join(lines).replace("\\\n", " ").splitlines()
    return [Step(*line.split(maxsplit=1)) for line in joined if line.strip()]


def faults(recipe: list[Step]) -> Iterator[str]:
    """What a careful reader would object to."""
    for step in recipe:
        image = step.rest.split()[0]
        if step.word == "FROM" and not re.search(r":\d+\.\d+", image):
            yield f"{image} is not pinned to a version"
        if step.word == "ADD":
            yield "ADD can fetch and unpack; COPY does what it says"
        if step.word in {"ENTRYPOINT", "CMD"} and not step.rest.startswith("["):
            yield f"{step.word} runs a shell that swallows signals"
        if "apt-get install" in step.rest and "rm -rf /var/lib/apt/lists/*" not in step.rest:
            yield "the package lists stay in the layer"
        if re.search(r"\bsudo\b|curl[^|]*\|", step.rest):
            yield "runs what it fetches"
    if not (users := [step.rest for step in recipe if step.word == "USER"]) or not re.fullmatch(
        r"[1-9]\d*(:\d+)?", users[-1]
    ):
        yield "runs as root, or as a user whose number Kubernetes cannot check"
    if [step.word for step in recipe].count("FROM") < 2:
        yield "what builds stays in the image"


@pytest.mark.parametrize("folder", FILES)
def test_a_recipe_has_no_fault(folder: str) -> None:
    assert list(faults(steps(FILES[folder]))) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("python:3.13-slim", "python:latest"),
        ("python:3.13-slim", "python"),
        ("COPY . .", "ADD . ."),
        ("USER 65532:65532", "USER paceline"),
        ("USER 65532:65532", "USER 0"),
        ('ENTRYPOINT ["python", "-m", "paceline_workers.main"]', "ENTRYPOINT python -m paceline_workers.main"),
        ("    && rm -rf /var/lib/apt/lists/*", "    && true"),
    ],
)
def test_the_reader_objects_to_a_faulty_one(tmp_path: Path, before: str, after: str) -> None:
    text = FILES["workers"].read_text()
    assert before in text
    (tmp_path / "Dockerfile").write_text(text.replace(before, after))
    assert list(faults(steps(tmp_path / "Dockerfile")))


@pytest.mark.parametrize("folder", FILES)
def test_every_recipe_runs_as_the_user_that_the_pods_name(folder: str) -> None:
    assert Step("USER", "65532:65532") in steps(FILES[folder])


@pytest.mark.parametrize("folder", FILES)
def test_an_image_starts_the_process_of_its_part(folder: str) -> None:
    [entry] = [step.rest for step in steps(FILES[folder]) if step.word == "ENTRYPOINT"]
    assert json.loads(entry) == ["python", "-m", f"paceline_{folder}.main"]


def test_the_build_sees_only_what_the_wheel_is_made_of() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    allowed = {rule.removeprefix("!") for rule in rules if rule.startswith("!")}
    built = (WHEEL["packages"], [PROJECT["readme"], *PROJECT["license-files"], "pyproject.toml"])
    assert allowed == {path.partition("/")[0] for paths in built for path in paths}
    assert all((ROOT / name).exists() for name in allowed)


@pytest.mark.real
@pytest.mark.parametrize("folder", FILES)
def test_an_image_holds_every_package_that_its_process_imports(folder: str) -> None:
    [extras] = [found[1].split(",") for step in steps(FILES[folder]) if (found := INSTALLED.search(step.rest))]
    owners = importlib.metadata.packages_distributions()
    needed = {_plain(owner) for name in _imported_by(folder) for owner in owners.get(name, [])} - {"paceline"}
    brought = {name for extra in extras for line in EXTRAS[extra] for name in _closure(Requirement(line))}
    brought |= {name for line in ALWAYS for name in _closure(Requirement(line))}
    assert needed
    assert needed - brought == set()


def _imported_by(folder: str) -> set[str]:
    """Top-level names that our own files import, of all our modules that the process loads."""
    code = LOADED.format(modules=", ".join((f"paceline_{folder}.main", *LATER[folder])))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    trees = [ast.parse(Path(file).read_text()) for file in json.loads(done.stdout)]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    whole = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    parts = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {name.partition(".")[0] for name in whole | parts}


def _closure(requirement: Requirement, seen: frozenset[str] = frozenset()) -> set[str]:
    """Every distribution that comes with this one."""
    name = _plain(requirement.name)
    if name == "paceline":
        lines = [Requirement(line) for extra in requirement.extras for line in EXTRAS[extra]]
    elif name in seen:
        return {name}
    else:
        lines = [Requirement(line) for line in importlib.metadata.requires(name) or []]
    wanted = [line for line in lines if line.marker is None or line.marker.evaluate({"extra": ""})]
    return {name}.union(*(_closure(line, seen | {name}) for line in wanted))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
