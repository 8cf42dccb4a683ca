"""Planted faults: drawn by seed, found after renames, caught by a test or not, and the file as it was afterwards."""

import ast
import json
import sys
from pathlib import Path

import pytest
from tools.planted_faults import __main__ as command
from tools.planted_faults.faults import Fault, NotFoundError, Tree, as_rows, draw, find, read_faults, write_json
from tools.planted_faults.mutations import MUTATIONS, mutated, sites
from tools.planted_faults.related import ImportGraph
from tools.planted_faults.trial import Limits, Trials

CORE = '''"""Sizes."""

def room(taken: list[int], whole: int = 3) -> int:
    """What is left."""
    sums = 0
    for part in taken:
        if part < 0 or part > whole:
            continue
        sums += part
    return max(whole - sums, 0)


def joined(first: str, other: str, marks: list[str]) -> str:
    marks.append(f"{first} {1 + 1}")
    marks.clear()
    return other.replace(first, other) if any(marks) else first
'''
RENAMED = (
    CORE.replace('    """What is left."""\n', "")
    .replace("room", "free_space")
    .replace("taken", "used")
    .replace("sums", "total")
    .replace("def joined", 'def added() -> None:\n    """Not there before."""\n\n\ndef joined')
)
TESTS = """
from paceline_sized.sizes import room
import pytest

def test_always_broken() -> None:
    assert room([], 3) == 4

@pytest.mark.parametrize("taken", [[1, 2], [3], [4, 3]])
def test_nothing_is_left(taken: list[int]) -> None:
    assert room(taken) == 0
    assert room([1]) == 2
"""
LIMITS = Limits(seconds=60.0, quick=5, kernels=5, real=5)


def planted(root: Path, source: str, path: str = "sized/paceline_sized/sizes.py") -> Tree:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return Tree(root)


def fault_of(tree: Tree, mutation: str, before: str) -> Fault:
    """The first drawn of this mutation that begins so."""
    drawn = (fault for seed in range(400) for fault in draw(tree, seed, 2))
    return next(fault for fault in drawn if fault.mutation == mutation and fault.before.startswith(before))


def test_the_same_seed_draws_the_same_faults(tmp_path: Path) -> None:
    tree = planted(tmp_path, CORE)
    assert draw(tree, 7, 2) == draw(Tree(tmp_path), 7, 2)
    assert len({fault.after for seed in range(20) for fault in draw(tree, seed, 2)}) > 5
    write_json(tmp_path / "faults.json", as_rows(draw(tree, 7, 2)))
    assert read_faults(tmp_path / "faults.json") == draw(tree, 7, 2)


def test_each_package_has_a_share_and_paths_can_be_left_out(tmp_path: Path) -> None:
    for number in range(20):
        planted(tmp_path, CORE, f"gateway/paceline_gateway/part{number}.py")
    planted(tmp_path, CORE, "sized/paceline_sized/two.py")
    tree = planted(tmp_path, CORE)
    shares = [fault.package for fault in draw(tree, 1, 20, ["*/two.py"])]
    assert (shares.count("sized"), shares.count("gateway")) == (2, 18)
    assert {fault.path for fault in draw(tree, 1, 20)} >= {"sized/paceline_sized/two.py"}


def test_every_mutation_changes_its_node_and_nothing_else() -> None:
    body = CORE.replace("if part <", "if not part <").replace("[int]", "[int], other: bool = True")
    functions = [node for node in ast.parse(body).body if isinstance(node, ast.FunctionDef)]
    found = [site for function in functions for many in sites(function).values() for site in many]
    assert {site.mutation for site in found} == set(MUTATIONS)
    for site in found:
        lines = zip(body.splitlines(), mutated(body, site).splitlines(), strict=True)
        assert [number for number, (old, new) in enumerate(lines, 1) if old != new] == [site.node.lineno]
    assert not any("1 + 1" in ast.unparse(site.node) for site in found if site.mutation == "constant changed")


@pytest.mark.parametrize(
    ("mutation", "before", "line"),
    [
        ("comparison's boundary moved", "part >", "        if part < 0 or (part >= whole):"),
        ("min/max or any/all swapped", "max", "    return min(whole - total, 0)"),
        ("arithmetic operator swapped", "sums", "        total -= part"),
    ],
)
def test_a_fault_is_found_under_new_names_in_a_new_place(tmp_path: Path, mutation: str, before: str, line: str) -> None:
    fault = fault_of(planted(tmp_path / "before", CORE), mutation, before)
    after = planted(tmp_path / "after", RENAMED, "local/paceline_local/space/free.py")
    found = find(fault, after, {})
    assert (found.path, found.function) == ("local/paceline_local/space/free.py", "free_space")
    assert line in mutated(found.source, found.site).splitlines()


def test_in_a_rewritten_function_a_fault_is_found_by_the_shape_of_its_node_or_not_at_all(tmp_path: Path) -> None:
    fault = fault_of(planted(tmp_path / "before", CORE), "comparison's boundary moved", "part >")
    more = CORE.replace("    sums = 0\n", "    sums = len(taken) - len(taken)\n")
    assert find(fault, planted(tmp_path / "more", more), {}).site.text == fault.after
    less = planted(tmp_path / "less", CORE.replace(" or part > whole", ""))
    with pytest.raises(NotFoundError, match=r"rewritten: sized/paceline_sized/sizes\.py room has"):
        find(fault, less, {})


def test_the_table_says_where_a_function_went_and_that_it_went(tmp_path: Path) -> None:
    fault = fault_of(planted(tmp_path / "before", CORE), "and/or swapped", "part")
    twice = planted(tmp_path / "after", RENAMED, "sized/paceline_sized/one.py")
    twice = planted(tmp_path / "after", RENAMED, "sized/paceline_sized/two.py")
    with pytest.raises(NotFoundError, match="functions look like"):
        find(fault, twice, {})
    old = (fault.path, fault.function)
    assert (
        find(fault, twice, {old: ("sized/paceline_sized/two.py", "free_space")}).path == "sized/paceline_sized/two.py"
    )
    with pytest.raises(NotFoundError, match="removed"):
        find(fault, twice, {old: ("", "")})


def test_the_nearest_tests_come_first_and_those_of_a_processs_package_among_the_real(tmp_path: Path) -> None:
    planted(tmp_path, CORE)
    planted(tmp_path, "from paceline_sized.sizes import joined\n", "sized/paceline_sized/user.py")
    planted(tmp_path, "from paceline_sized.user import joined\n", "tests/sized/test_far.py")
    planted(tmp_path, "from paceline_sized.sizes import joined\n", "tests/sized/test_near.py")
    planted(tmp_path, "from paceline_sized.sizes import room\nroom([])\n", "tests/sized/test_named.py")
    planted(tmp_path, "import pytest\npytestmark = pytest.mark.real\n", "tests/sized/test_process.py")
    planted(tmp_path, "import json\n", "tests/gateway/test_other.py")
    graph = ImportGraph(tmp_path)
    related = graph.related("sized/paceline_sized/sizes.py", "room")
    assert related == ["tests/sized/test_named.py", "tests/sized/test_near.py", "tests/sized/test_far.py"]
    assert graph.real("sized", related) == ["tests/sized/test_process.py"]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of one module with its tests, in this process's environment."""
    planted(tmp_path, CORE)
    planted(tmp_path, TESTS, "tests/sized/test_sizes.py")
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = sized\nmarkers =\n    real: x\n    kernels: x\n")
    python = tmp_path / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    return tmp_path


@pytest.mark.real
def test_a_fault_is_caught_by_a_test_that_passes_without_it(checkout: Path) -> None:
    trials = Trials(checkout, checkout / "kept", LIMITS)
    tree = Tree(checkout)
    caught = fault_of(tree, "comparison's boundary moved", "part >")
    outcome = trials.run(caught, find(caught, tree, {}))
    assert (outcome.result, outcome.layer) == ("caught", "not real and not kernels")
    assert outcome.test.startswith("tests/sized/test_sizes.py::test_nothing_is_left[")
    assert trials.unsteady == {"tests/sized/test_sizes.py::test_always_broken"}
    missed = fault_of(tree, "call dropped", "marks.clear")
    assert trials.run(missed, find(missed, tree, {})).result == "missed"
    assert (checkout / "sized/paceline_sized/sizes.py").read_text() == CORE
    assert not (checkout / "kept").exists()


@pytest.mark.real
def test_a_trial_that_takes_too_long_ends_and_leaves_the_file_as_it_was(checkout: Path) -> None:
    planted(
        checkout,
        "import time\nimport paceline_sized.sizes\n\ndef test_long():\n    time.sleep(90)\n",
        "tests/test_sleep.py",
    )
    trials = Trials(checkout, checkout / "kept", Limits(seconds=3.0, quick=9, kernels=0, real=0))
    trials.unsteady.add("tests/sized/test_sizes.py::test_always_broken")
    fault = fault_of(Tree(checkout), "call dropped", "marks.clear")
    assert trials.run(fault, find(fault, Tree(checkout), {})).result == "timeout"
    assert (checkout / "sized/paceline_sized/sizes.py").read_text() == CORE


@pytest.mark.real
def test_a_run_goes_on_where_it_ended_and_undoes_what_a_killed_one_left(
    checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    faults, before, after = (checkout / name for name in ("faults.json", "before.json", "after.json"))
    common = ["--faults", str(faults), "--root", str(checkout)]
    assert command.main([*common, "draw", "--count", "2"]) == 0
    first, second = read_faults(faults)
    module = checkout / "sized/paceline_sized/sizes.py"
    before.with_suffix(".restore").write_text(f"sized/paceline_sized/sizes.py\n{CORE}")
    module.write_text("broken(")
    assert command.main([*common, "run", "--results", str(before), "--only", first.id]) == 0
    assert module.read_text() == CORE
    assert [row["fault"] for row in json.loads(before.read_text())] == [first.id]
    assert command.main([*common, "run", "--results", str(before)]) == 0
    rows = json.loads(before.read_text())
    assert [row["fault"] for row in rows] == [first.id, second.id]
    write_json(before, [{**row, "result": "caught"} for row in rows])
    write_json(after, [{**rows[0], "result": "missed"}, {**rows[1], "result": "not applicable"}])
    assert command.main([*common, "compare", str(before), str(after)]) == 1
    said = capsys.readouterr().out
    assert "1 faults apply in both; caught 1 before, 0 after" in said
    assert f"{first.id}\tbefore caught, after missed" in said
