"""Which tests to run for a fault: those that import the changed module, nearest and cheapest first."""

import ast
import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Final

TREES: Final = ("tests", "tools", "benchmarks")
FOLDERS: Final[Mapping[str, tuple[str, ...]]] = {
    "workers": ("worker", "engine"),
    "kernels": ("kernels", "engine"),
    "cli": ("cli", "local"),
}
"""Prefixes of a package's folders under tests/, where they are not its name."""
ELSEWHERE: Final = ("tests/cluster/", "tests/chart/", "tests/dashboards/", "tests/clients/")
"""Real tests that `make test` leaves to `make test-cluster` and `make nightly`."""


class ImportGraph:
    """Modules of one checkout and what they import, tests included; a test also imports its folders' conftest."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._paths = {_module(path, root): path for path in _sources(root)}
        self._imports = {name: set(self._imported(name, path)) for name, path in self._paths.items()}

    def related(self, path: str, function: str) -> list[str]:
        """Paths of test files that reach the module; a test that names the function or its class comes earlier."""
        near = _distances([_module(self._root / path, self._root)], self._importers)
        words = [re.compile(rf"\b{re.escape(word)}\b") for word in function.split(".")]
        ranked: list[tuple[int, int, str]] = []
        for name, test in self._paths.items():
            if name in near and test.name.startswith("test_"):
                text = test.read_text(encoding="utf-8")
                mentions = sum(word.search(text) is not None for word in words)
                cost = len(_distances([name], self._imports))
                ranked.append((near[name] - mentions, cost, str(test.relative_to(self._root))))
        return [test for _, _, test in sorted(ranked)]

    def marked(self, tests: Iterable[str], mark: str) -> list[str]:
        """Those whose file or whose folder's conftest names the mark."""
        return [test for test in tests if any(f"mark.{mark}" in path.read_text() for path in self._with_conftest(test))]

    def real(self, package: str, related: list[str]) -> list[str]:
        """Real tests, nearest first; those of the package's folders count although they only start its processes."""
        folders = tuple(f"tests/{folder}" for folder in FOLDERS.get(package, (package,)))
        own = sorted(str(path.relative_to(self._root)) for path in self._paths.values())
        own = [path for path in own if path.startswith(folders) and "/test_" in path and path not in related]
        near = [path for path in related if path.startswith(folders)]
        far = [path for path in related if not path.startswith(folders)]
        return [path for path in self.marked([*near, *own, *far], "real") if not path.startswith(ELSEWHERE)]

    @cached_property
    def _importers(self) -> Mapping[str, set[str]]:
        importers: dict[str, set[str]] = {name: set() for name in self._paths}
        for name, imported in self._imports.items():
            for other in imported:
                importers[other].add(name)
        return importers

    def _imported(self, name: str, path: Path) -> Iterator[str]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self._paths)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    yield from (
                        known for known in (inner if inner in self._paths else node.module,) if known in self._paths
                    )
        if name.startswith("tests."):
            parts = name.split(".")[:-1]
            folders = (".".join([*parts[: end + 1], "conftest"]) for end in range(len(parts)))
            yield from (folder for folder in folders if folder in self._paths and folder != name)

    def _with_conftest(self, test: str) -> list[Path]:
        path = self._root / test
        return [path, *(known for known in [path.with_name("conftest.py")] if known.exists())]


def _distances(start: Iterable[str], edges: Mapping[str, set[str]]) -> dict[str, int]:
    far = dict.fromkeys(start, 0)
    waiting = deque(far)
    while waiting:
        name = waiting.popleft()
        for other in edges.get(name, ()):
            if other not in far:
                far[other] = far[name] + 1
                waiting.append(other)
    return far


def _sources(root: Path) -> Iterator[Path]:
    yield from root.glob("*/paceline_*/**/*.py")
    for tree in TREES:
        yield from (root / tree).rglob("*.py")


def _module(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    if parts[0] not in TREES:
        parts = parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
