"""The steps that docs/architecture.md links to a function: each link names a symbol that exists, in the order given."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
LINK = re.compile(r"\[`([^`\]]+)`\]\(\.\./([^)#\s]+\.py)#([\w.]+)\)")
REQUEST = [
    "authenticate",
    "admit",
    "reserve",
    "enqueue",
    "Dispatcher",
    "dispatch",
    "pick",
    "send",
    "stream",
    "finish",
    "settle",
]
STEP = ["cycle", "waiting", "submit", "admission", "decode", "prefill", "step", "commit"]
SCALING = ["observation", "decide", "estimate", "recommendation", "SloPolicy", "decision", "scale"]
RECONCILING = ["plan_service", "execute"]


def section(title: str) -> str:
    _, _, rest = ARCHITECTURE.read_text().partition(f"\n## {title}\n")
    return rest.partition("\n## ")[0]


def defines(tree: ast.Module, symbol: str) -> bool:
    """Whether a module defines this function, class, or `Class.method`."""
    body: list[ast.stmt] = tree.body
    for name in symbol.split("."):
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
        found = next((node for node in body if isinstance(node, kinds) and node.name == name), None)
        if found is None:
            return False
        body = found.body
    return True


def test_a_symbol_that_does_not_exist_is_found() -> None:
    tree = ast.parse("class A:\n    def b(self): ...\ndef c(): ...\n")
    assert [defines(tree, symbol) for symbol in ("A", "A.b", "c", "b", "A.c", "A.b.d")] == [True] * 3 + [False] * 3


def test_every_step_of_the_architecture_links_to_a_function_that_exists() -> None:
    links = LINK.findall(ARCHITECTURE.read_text())
    assert len(links) >= len(REQUEST) + len(STEP) + len(SCALING)
    wrong = [
        f"{path}#{symbol}"
        for _, path, symbol in links
        if not (ROOT / path).is_file() or not defines(ast.parse((ROOT / path).read_text()), symbol)
    ]
    assert wrong == [], "docs/architecture.md links to functions that do not exist"


def test_a_requests_steps_are_linked_in_order() -> None:
    assert [step for step, _, _ in LINK.findall(section("A request's way"))] == REQUEST


def test_an_engine_steps_parts_are_linked_in_order() -> None:
    assert [step for step, _, _ in LINK.findall(section("A step's way"))] == STEP


def test_a_scale_ups_steps_are_linked_in_order() -> None:
    assert [step for step, _, _ in LINK.findall(section("A metric's way to a replica"))] == SCALING


def test_the_operators_plan_and_its_writes_are_linked_in_order() -> None:
    assert [step for step, _, _ in LINK.findall(section("On Kubernetes"))] == RECONCILING
