"""A decision follows from its arguments bit for bit: no chance, no clock, no order of sets, no rounding by order.

The modules that `decide` is made of are read, not run. What they take from elsewhere is named where it could matter.
"""

import ast
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import decide, demand, goal, load, observation, view

import paceline_autoscaler
from paceline_autoscaler.output.ledger_entry import decision_json
from paceline_autoscaler.state import State
from paceline_autoscaler.types import PolicyName

ROOT = Path(paceline_autoscaler.__file__).parent
CHANGING = {"random", "time", "secrets", "uuid", "os", "numpy", "asyncio", "threading"}
FROM_CLOCK = {"Clock", "rfc3339"}
"""A clock is only named, as an argument of others; a time is only formatted."""
ORDER_FREE = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted"}
ORDERED = {"dict", "enumerate", "fsum", "iter", "join", "list", "next", "reversed", "sum", "tuple", "zip"}
SUMS_OF_WHOLE_NUMBERS = {
    "_beside(work).values()",
    "(cls.in_flight for cls in work.observation.demand.classes)",
    "(counts[pool.name] * pool.gpus for pool in spec.pools)",
    "((sample.pool, sample.kind) == (other.pool, other.kind) for other in kept)",
    "(load.waiting for load in _loads(group))",
    "(max(cls.held, cls.queued) for cls in classes)",
    "(max(cls.queued, cls.held) for cls in work.observation.demand.classes)",
    "(pool.count(state) for state in there)",
    "(pool.ready for pool in self.pools)",
    "(pool.replicas for pool in self.pools)",
    "(pool.status.desired for pool in self.pools)",
    "(requests for requests, _ in theirs)",
    "(tokens for _, tokens in theirs)",
    "(replica.state is state for replica in self.replicas)",
    "(start.absent for start in starts)",
    "counts.values()",
    "current.values()",
    "fewer.values()",
    "self.counts.values()",
    "service.values()",
    "wanted.values()",
    "work.ordered.values()",
}


def imports(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Each import: the module and the name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((node.module or "", alias.name) for alias in node.names)


@cache
def modules() -> dict[str, ast.Module]:
    """The modules of this package that `decide` needs, by name."""
    found: dict[str, ast.Module] = {}
    waiting = ["paceline_autoscaler.policies.decision"]
    while waiting:
        name = waiting.pop()
        path = ROOT.parent / f"{name.replace('.', '/')}.py"
        if name not in found and path.exists():
            found[name] = ast.parse(path.read_text())
            waiting += [module for module, _ in imports(found[name]) if module.startswith("paceline_autoscaler")]
    return found


def called(node: ast.AST | None) -> str:
    """The name of the function or method that is called; empty if nothing is."""
    if not isinstance(node, ast.Call):
        return ""
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def set_names(tree: ast.AST) -> set[str]:
    """Variables and fields below this node that are sets, by assignment or annotation."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and is_set(node.value, set()):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            target = node.target if isinstance(node, ast.AnnAssign) else ast.Name(node.arg)
            if ast.unparse(node.annotation).startswith(("set[", "frozenset[")) and isinstance(target, ast.Name):
                names.add(target.id)
    return names


def is_set(node: ast.AST, names: set[str]) -> bool:
    if isinstance(node, ast.BinOp):
        return is_set(node.left, names) or is_set(node.right, names) or called(node.left) == "keys"
    named = getattr(node, "id", "") if isinstance(node, ast.Name) else getattr(node, "attr", "")
    return isinstance(node, ast.Set | ast.SetComp) or called(node) in {"set", "frozenset"} or named in names


def iterations_over_sets(tree: ast.AST, names: set[str]) -> list[str]:
    """Where the order of a set can reach the result."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    found: list[ast.AST] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.For | ast.Starred):
            found += [node] if is_set(node.iter if isinstance(node, ast.For) else node.value, names) else []
        elif isinstance(node, ast.GeneratorExp | ast.ListComp | ast.DictComp):
            free = called(parents.get(node)) in ORDER_FREE
            found += [node] if not free and any(is_set(part.iter, names) for part in node.generators) else []
        elif isinstance(node, ast.Call) and called(node) in ORDERED:
            found += [node] if any(is_set(argument, names) for argument in node.args) else []
    return [ast.unparse(node) for node in found]


def test_the_modules_of_a_decision_are_found() -> None:
    names = {name.removeprefix("paceline_autoscaler.") for name in modules()}
    assert names >= {"types", "state", "model.estimate", "model.starts", "policies.slo", "policies.constraints"}


def test_no_decision_takes_chance_or_a_clock() -> None:
    used = [(name, *found) for name, tree in modules().items() for found in imports(tree)]
    assert [each for each in used if each[1].partition(".")[0] in CHANGING] == []
    assert {what for _, module, what in used if module == "paceline_core.clock"} <= FROM_CLOCK
    calls = [called(node) for tree in modules().values() for node in ast.walk(tree)]
    assert {"now", "utcnow", "today", "hash", "id"}.isdisjoint(calls)


def test_no_decision_depends_on_the_order_of_a_set() -> None:
    parts = [node for tree in modules().values() for node in tree.body]
    fields = set().union(*(set_names(part) for part in parts if isinstance(part, ast.ClassDef)))
    assert "unreported" in fields
    assert [each for part in parts for each in iterations_over_sets(part, fields | set_names(part))] == []


@pytest.mark.parametrize(
    "text",
    [
        "for each in {1, 2}: pass",
        "names = {a for a in b}\nfound = [name for name in names]",
        "total = fsum(x for x in set(y))",
        "text = ', '.join(frozenset(y))",
        "rows = (*unreported,)",
        "first = next(iter(a.keys() & b.keys()))",
        "def f(seen: set[str]): return tuple(seen)",
    ],
)
def test_a_use_of_a_sets_order_is_found(text: str) -> None:
    tree = ast.parse(text)
    assert iterations_over_sets(tree, {"unreported"} | set_names(tree))


def test_builtin_sums_add_whole_numbers_and_all_others_are_exact() -> None:
    nodes = [node for tree in modules().values() for node in ast.walk(tree) if called(node) == "sum"]
    arguments = {ast.unparse(argument) for node in nodes if isinstance(node, ast.Call) for argument in node.args}
    assert arguments == SUMS_OF_WHOLE_NUMBERS


@pytest.mark.parametrize("policy", ["slo", "kv"])
@given(
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 10_000)), min_size=2, max_size=8).flatmap(
        lambda rows: st.tuples(st.just(rows), st.permutations(rows))
    )
)
def test_the_order_of_workers_changes_no_bit(
    policy: PolicyName, rows: tuple[list[tuple[float, int]], list[tuple[float, int]]]
) -> None:
    decided = []
    for order in rows:
        loads = tuple(
            load(f"ready-{n}", kv_used=used, waiting=1, queued_tokens=tokens) for n, (used, tokens) in enumerate(order)
        )
        pool = replace(view(ready=len(loads)), loads=loads)
        seen = observation(goal=replace(goal(), policy=policy), demand=demand(1.3), pools=(pool,))
        decided.append(decision_json(decide(seen, State())[0]))
    assert decided[0] == decided[1]
