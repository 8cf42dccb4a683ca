"""The closed set of mutations: where each can stand in a function, and the text that replaces the node.

A site is counted per mutation in source order, so a rename keeps its ordinal. Left out are annotations, default
values, assertions, the arguments of `raise` and the inside of f-strings: they hold texts and types, not decisions.
"""

import ast
import copy
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
Edit = tuple[ast.expr | ast.stmt, str]
"""A node and the text that takes its place."""

_BOUNDARY: Final[Mapping[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_OPPOSITE: Final[Mapping[type[ast.AST], type[ast.AST]]] = {
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
_ARITHMETIC: Final[Mapping[type[ast.AST], type[ast.AST]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult,
}  # fmt: skip
_SWAPPED_CALLS: Final = {"min": "max", "max": "min", "any": "all", "all": "any"}
_SYMMETRIC_CALLS: Final = frozenset({"min", "max", "isinstance", "getattr", "cast", "suppress"})
_LOG_CALLS: Final = frozenset({"debug", "info", "warning", "error", "exception", "log", "print", "echo"})
_SKIPPED: Final = (ast.arguments, ast.Assert, ast.Raise, ast.JoinedStr)
_SKIPPED_FIELDS: Final = frozenset({"annotation", "returns", "decorator_list"})
_LITERALS: Final = (ast.Tuple, ast.List, ast.JoinedStr)


@dataclass(frozen=True)
class Site:
    """One place for one mutation: the `ordinal`-th of its kind in the function."""

    mutation: str
    ordinal: int
    node: ast.expr | ast.stmt
    text: str


def sites(function: Function) -> dict[str, list[Site]]:
    """All sites in the function's body, per mutation, in source order."""
    found: dict[str, list[Site]] = {}
    for node in _nodes(function):
        for name, edits in MUTATIONS.items():
            for target, text in edits(node):
                same = found.setdefault(name, [])
                same.append(Site(name, len(same), target, text))
    return found


def mutated(source: str, site: Site) -> str:
    """The module's text with the site's node replaced."""
    node, lines = site.node, source.encode().splitlines(keepends=True)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    text = (before + site.text.encode() + after).decode()
    ast.parse(text)
    return text


def form(node: Any) -> str:
    """The node's shape without names, texts, annotations and docstrings: what a rename keeps."""
    match node:
        case ast.JoinedStr() | ast.Constant(value=str() | bytes()):
            return "text"
        case ast.Constant():
            return repr(node.value)
        case ast.AST():
            fields = ((name, value) for name, value in ast.iter_fields(node) if name not in _SKIPPED_FIELDS)
            return f"{type(node).__name__}({','.join(f'{name}={form(value)}' for name, value in fields)})"
        case list():
            return f"[{','.join(form(part) for part in node if not _is_text(part))}]"
        case str():
            return "_"
        case _:
            return repr(node)


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name in _SKIPPED_FIELDS or not isinstance(child, ast.AST) or isinstance(child, _SKIPPED):
                continue
            yield child
            yield from _nodes(child)


def _compared(node: ast.AST, other: Mapping[type[ast.AST], type[ast.AST]]) -> Iterator[Edit]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            if type(operator) in other:
                changed = copy.deepcopy(node)
                changed.ops[index] = other[type(operator)]()  # type: ignore[call-overload]
                yield node, _text(changed)


def _joined(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.BoolOp):
        changed = copy.copy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield node, _text(changed)


def _negated(node: ast.AST) -> Iterator[Edit]:
    tests = node.ifs if isinstance(node, ast.comprehension) else []
    if isinstance(node, ast.If | ast.While | ast.IfExp):
        tests = [node.test]
    for test in tests:
        if not isinstance(test, ast.Constant):
            yield test, f"(not {_text(test)})"


def _calculated(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.BinOp | ast.AugAssign) or type(node.op) not in _ARITHMETIC:
        return
    parts = [node.left, node.right] if isinstance(node, ast.BinOp) else [node.value]
    if any(isinstance(part, _LITERALS) or (isinstance(part, ast.Constant) and part.value == "") for part in parts):
        return
    changed = copy.copy(node)
    changed.op = _ARITHMETIC[type(node.op)]()  # type: ignore[assignment]
    yield node, _text(changed)


def _constant(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Constant) and isinstance(node.value, bool):
        yield node, str(not node.value)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield node, f"({node.value + 1!r})"


def _returned(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Return) and node.value and ast.unparse(node.value) != "None":
        yield node, "return None"


def _replaced_call(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _SWAPPED_CALLS:
        yield node.func, _SWAPPED_CALLS[node.func.id]


def _early_exit(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.If):
        for statement in node.body:
            if isinstance(statement, ast.Return | ast.Continue | ast.Break | ast.Raise):
                yield statement, "pass"


def _arguments(node: ast.AST) -> Iterator[Edit]:
    if not isinstance(node, ast.Call) or len(node.args) < 2 or _name(node.func) in _SYMMETRIC_CALLS | _LOG_CALLS:
        return
    first, second, *rest = node.args
    if _kind(first) == _kind(second) != "Starred" and _text(first) != _text(second):
        changed = copy.copy(node)
        changed.args = [second, first, *rest]
        yield node, _text(changed)


def _dropped_call(node: ast.AST) -> Iterator[Edit]:
    if isinstance(node, ast.Expr):
        call = node.value.value if isinstance(node.value, ast.Await) else node.value
        if isinstance(call, ast.Call) and _name(call.func) not in _LOG_CALLS:
            yield node, "pass"


def _kind(node: ast.expr) -> str:
    """Arguments of unlike kinds are of unlike types as a rule: mypy finds such a swap."""
    return (
        f"{type(node).__name__} {type(node.value).__name__}" if isinstance(node, ast.Constant) else type(node).__name__
    )


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _text(node: ast.expr | ast.stmt) -> str:
    return f"({ast.unparse(node)})" if isinstance(node, ast.expr) else ast.unparse(node)


MUTATIONS: Final[Mapping[str, Callable[[ast.AST], Iterator[Edit]]]] = {
    "comparison's boundary moved": lambda node: _compared(node, _BOUNDARY),
    "comparison reversed": lambda node: _compared(node, _OPPOSITE),
    "and/or swapped": _joined,
    "condition negated": _negated,
    "arithmetic operator swapped": _calculated,
    "constant changed": _constant,
    "result dropped": _returned,
    "min/max or any/all swapped": _replaced_call,
    "early exit removed": _early_exit,
    "arguments swapped": _arguments,
    "call dropped": _dropped_call,
}
