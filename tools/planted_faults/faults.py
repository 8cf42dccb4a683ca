"""Faults: drawn by seed from the product's functions, and found again in a tree whose names and places changed."""

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from fnmatch import fnmatch
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Final

from tools.planted_faults.mutations import Function, Site, form, sites

Place = tuple[str, str, Function]
"""Path, qualified name and node."""
Table = Mapping[tuple[str, str], tuple[str, str]]
"""Old (path, qualified name) to the new one; an empty new path: the function is gone."""

SMALLEST: Final = 24
"""Nodes of the syntax tree below which a function is too simple to draw."""
LEAST: Final = 3
"""Faults a package gets at least."""
COMMON: Final[Mapping[str, float]] = {"result dropped": 0.4, "arguments swapped": 0.4}
"""Weights of mutations that nearly every function has a site for; the others weigh 1."""


class NotFoundError(Exception):
    """The fault's function or site is not in this tree."""


@dataclass(frozen=True)
class Fault:
    """One mutation of one function. `shape` and `node_shape` are digests that a rename keeps."""

    id: str
    package: str
    path: str
    function: str
    mutation: str
    ordinal: int
    """Which of the function's sites of this mutation."""
    line: int
    before: str
    after: str
    shape: str
    node_shape: str
    alike: tuple[int, int]
    """Position among the sites of this mutation with the same node shape, and their number."""


@dataclass(frozen=True)
class Found:
    """A fault's site in a tree."""

    path: str
    function: str
    source: str
    site: Site


class Tree:
    """The module-level functions and methods of a checkout's product, in order of path and line."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.places = list(_places(root))

    @cached_property
    def by_name(self) -> Mapping[tuple[str, str], Function]:
        """Functions by path and qualified name."""
        return {(path, name): node for path, name, node in self.places}

    @cached_property
    def by_shape(self) -> Mapping[str, list[Place]]:
        """Functions by the digest of their shape."""
        found: dict[str, list[Place]] = {}
        for place in self.places:
            found.setdefault(shape(place[2]), []).append(place)
        return found


def draw(tree: Tree, seed: int, count: int, without: Sequence[str] = ()) -> list[Fault]:
    """`count` faults in different functions; each package gets its share of the functions, and some in any case."""
    random = Random(seed)  # noqa: S311 - draws faults, not secrets
    packages: dict[str, list[Place]] = {}
    for path, name, node in tree.places:
        if _worth_drawing(path, node) and not any(fnmatch(path, pattern) for pattern in without):
            packages.setdefault(path.partition("/")[0], []).append((path, name, node))
    faults: list[Fault] = []
    for package, number in _shares({name: len(known) for name, known in packages.items()}, count).items():
        for place in random.sample(packages[package], number):
            faults.append(_drawn(random, f"{package}-{len(faults) + 1:02}", place))
    return faults


def find(fault: Fault, tree: Tree, table: Table) -> Found:
    """The fault's site in this tree: where it was, else by the table, else by the function's shape.

    Raises NotFoundError unless exactly one place fits.
    """
    path, name = fault.path, fault.function
    node = tree.by_name.get((path, name))
    if node is None or shape(node) != fault.shape:
        path, name, node = _moved(fault, tree, table)
    return Found(path, name, (tree.root / path).read_text(encoding="utf-8"), _site(fault, f"{path} {name}", node))


def read_faults(path: Path) -> list[Fault]:
    """The faults of a file that `write_json` wrote."""
    rows = json.loads(path.read_text(encoding="utf-8"))
    return [Fault(**{**row, "alike": tuple(row["alike"])}) for row in rows]


def write_json(path: Path, rows: object) -> None:
    """Whole or not at all: an interrupted run leaves the former file."""
    text = json.dumps(rows, indent=1, ensure_ascii=False) + "\n"
    draft = path.with_suffix(".new")
    draft.write_text(text, encoding="utf-8")
    draft.replace(path)


def as_rows(faults: Iterable[Fault]) -> list[dict[str, object]]:
    """Faults as JSON objects."""
    return [asdict(fault) for fault in faults]


def read_table(path: Path) -> Table:
    """Rows of old path, old name, new path, new name, between tabs; without the last two the function is gone."""
    lines = path.read_text(encoding="utf-8").splitlines()
    rows = [[*line.split("\t"), "", ""] for line in lines if line and not line.startswith("#")]
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def _places(root: Path) -> Iterator[Place]:
    for path in sorted(root.glob("*/paceline_*/**/*.py")):
        for name, node in _functions(ast.parse(path.read_text(encoding="utf-8"))):
            yield str(path.relative_to(root)), name, node


def _functions(node: ast.AST, prefix: str = "") -> Iterator[tuple[str, Function]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.ClassDef):
            yield from _functions(child, f"{prefix}{child.name}.")
        elif isinstance(child, Function):
            yield f"{prefix}{child.name}", child
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, prefix)


def _worth_drawing(path: str, node: Function) -> bool:
    """Triton's kernels have tests that compile; texts for developers have none."""
    kernel, text = path.endswith("/kernel.py"), node.name in {"__repr__", "__str__"}
    return not kernel and not text and sum(1 for _ in ast.walk(node)) >= SMALLEST and bool(sites(node))


def _shares(sizes: Mapping[str, int], count: int) -> dict[str, int]:
    """Largest remainders, after the least that each gets."""
    total = sum(sizes.values())
    exact = {name: max(LEAST, count * size / total) for name, size in sizes.items()}
    shares = {name: int(value) for name, value in exact.items()}
    by_size = sorted(sizes, key=lambda name: -sizes[name])
    by_rest = sorted(sizes, key=lambda name: shares[name] - exact[name])
    while (missing := count - sum(shares.values())) > 0:
        for name in by_rest[:missing]:
            shares[name] += 1
    while (excess := sum(shares.values()) - count) > 0:
        for name in by_size[:excess]:
            shares[name] -= 1
    return shares


def _drawn(random: Random, identity: str, place: Place) -> Fault:
    path, name, node = place
    found = sites(node)
    mutation = random.choices(known := sorted(found), [COMMON.get(name, 1.0) for name in known])[0]
    site = random.choice(found[mutation])
    alike = [other.ordinal for other in found[mutation] if shape(other.node) == shape(site.node)]
    return Fault(
        id=identity,
        package=path.partition("/")[0],
        path=path,
        function=name,
        mutation=mutation,
        ordinal=site.ordinal,
        line=site.node.lineno,
        before=ast.unparse(site.node),
        after=site.text,
        shape=shape(node),
        node_shape=shape(site.node),
        alike=(alike.index(site.ordinal), len(alike)),
    )


def _moved(fault: Fault, tree: Tree, table: Table) -> Place:
    """The table's function; else the one of the fault's shape, in doubt of its name; else its own, though rewritten."""
    old = fault.path, fault.function
    if place := table.get(old):
        if not place[0]:
            raise NotFoundError("removed")
        if place not in tree.by_name:
            raise NotFoundError(f"the table's {' '.join(place)} is not there")
        return (*place, tree.by_name[place])
    same = tree.by_shape.get(fault.shape, [])
    if len(same) > 1:
        same = [place for place in same if place[1].rpartition(".")[2] == fault.function.rpartition(".")[2]]
    if len(same) == 1:
        return same[0]
    if old not in tree.by_name:
        raise NotFoundError(f"{len(same)} functions look like {' '.join(old)}")
    return (*old, tree.by_name[old])


def _site(fault: Fault, place: str, node: Function) -> Site:
    """In a function that was rewritten, the site of the same shape and rank, if there are as many as before."""
    found = sites(node).get(fault.mutation, [])
    if shape(node) == fault.shape:
        return found[fault.ordinal]
    rank, number = fault.alike
    alike = [site for site in found if shape(site.node) == fault.node_shape]
    if len(alike) != number:
        raise NotFoundError(f"rewritten: {place} has {len(alike)} such sites, not {number}")
    return alike[rank]


def shape(node: ast.AST) -> str:
    """A digest that keeps over renames and moves: see `form`."""
    return hashlib.blake2b(form(node).encode(), digest_size=8).hexdigest()
