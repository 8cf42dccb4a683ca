"""The kinds of structured output, each as one string, and whether a grammar can be followed. Needs no torch.

json                  any JSON object
json_schema:<schema>  JSON that fits the schema
regex:<expression>    text that the expression matches as a whole (Rust's syntax: no look-around, no back-references)
lark:<grammar>        text of a context-free grammar in llguidance's dialect of Lark, without special tokens
calls:<grammar>       the same, written by the server from a client's schemas: an answer or tool calls

The server's check and the engine read a grammar with the same limits, and over the same tokens if `check` gets them: so
the engine can compile every accepted grammar, and one that exceeds a limit at its very start is never accepted. A check
may take long, so it runs in a process that can be ended (`paceline_workers.server.grammar.process`).
JSON has at most one blank where JSON allows any number, or a model that likes them would spend its tokens on them; a
schema can change that by its `x-guidance`, as in llguidance.
A grammar that is increasingly ambiguous costs increasing time for each token, and all requests of the step wait for it:
so Lark has a lower limit of parallel readings than JSON, which has many (a schema's optional properties) but is never
ambiguous. A request whose grammar exceeds such a limit while it is followed is refused then (`grammar_matcher`).
Known hole: a grammar may reach a point where nothing can follow (a property without a valid value), and its request
ends there.

Grammars that would cost the library seconds or gigabytes are refused before it reads them. It follows `multipleOf` by
its remainders and does not count that work: 99,991 takes 0.9 s, two of 9,973 and 9,967 that must both hold take
minutes. It follows a forced text byte by byte when it begins: 60,000 take 50 ms a request. Nested counts multiply.
Known hole: only known costs are listed. The limits of a check's process end any other (`server.grammar.process`).
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from functools import cache
from math import lcm
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from paceline_workers.engine.sampling.json_schema import NAMED, QUOTED, in_words, readable

MULTIPLE = 10_000
"""The largest `multipleOf` without its decimal point: 0.05 counts as 5. 50 ms on one core."""
LITERAL = 8_192
"""The most characters of one literal text: a constant, a name, a part of an expression."""
REPEATS = 100_000
"""The largest product of nested counts of an expression."""
OPTIONAL = 480
"""The most optional properties of an object: any may come next, in four ways each, and the library follows 2,000 at one
place. Reading 2,000 of them takes 0.4 s, and then no text gets beyond the first brace."""
_JOINS = {"$ref", "anyOf", "oneOf"}
_NUMBER = re.compile(r'"multipleOf"\s*:\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)', re.ASCII)
_COUNT = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_BRACED = re.compile(r"\\[pPxuU]\{[^}]*\}|\\.", re.DOTALL)
_CLASS = re.compile(r"\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
_OPERATORS = re.compile(r"[|()\[\]{}*+?.\\]")
_LARK_TEXT = re.compile(r'"((?:\\.|[^"\\\n])*)"|/((?:\\.|[^/\\\n])+)/')


def schema_fault(schema: Mapping[str, Any]) -> str:
    """Return why a JSON schema is too costly, in words for the client; "" if no reason is known."""
    multiples: set[int] = set()
    together = False
    for path, node in _nodes(schema):
        if fault := _text_fault(path, node) or _width_fault(path, node):
            return fault
        multiple = node.get("multipleOf")
        if isinstance(multiple, int | float) and not isinstance(multiple, bool):
            if not multiple > 0:
                return f"`{path}multipleOf` is {multiple}, and must be more than 0"
            if (size := _size(str(multiple))) > MULTIPLE:
                return f"`{path}multipleOf` is {multiple}, and at most {MULTIPLE} without its decimal point is taken"
            multiples.add(size)
        together |= "allOf" in node or ("multipleOf" in node and not _JOINS.isdisjoint(node))
    if together and lcm(*multiples) > MULTIPLE:
        return f"its `multipleOf`, which `allOf` or `$ref` may join, have no common multiple up to {MULTIPLE}"
    return ""


def regex_fault(expression: str) -> str:
    """Return why a regular expression is too costly, or ""."""
    if (product := repeats(expression)) > REPEATS:
        return f"it repeats a part up to {product} times by counts within counts, and at most {REPEATS} is taken"
    if max(map(len, _OPERATORS.split(expression))) > LITERAL:
        return f"it spells out a text of more than {LITERAL} characters"
    return ""


def lark_fault(text: str) -> str:
    """Return why a grammar in Lark is too costly, with the schemas and expressions inside it, or ""."""
    sizes = {_size(number) for number in _NUMBER.findall(text)}
    if max(sizes, default=0) > MULTIPLE or ('"allOf"' in text and lcm(*sizes) > MULTIPLE):
        return f"a `multipleOf` in it, or several together, are over {MULTIPLE} without the decimal point"
    for literal, expression in _LARK_TEXT.findall(text):
        if len(literal) > LITERAL:
            return f"it spells out a text of more than {LITERAL} characters"
        if fault := regex_fault(expression):
            return fault
    return ""


def repeats(expression: str) -> int:
    """The largest product of nested counts: 6 for `(a{2}b{3}){2}`. An unbounded count counts as 1."""
    groups, last, at = [1], 1, 0
    while at < len(expression):
        found = _BRACED.match(expression, at) or _CLASS.match(expression, at) or _COUNT.match(expression, at)
        character = expression[at]
        at = found.end() if found else at + 1
        if found and character == "{":
            last *= max(int(number or 0) for number in (found[1][:9], (found[2] or "")[:9], "1"))
        elif character == "(":
            groups.append(1)
        elif character == ")" and len(groups) > 1:
            last = groups.pop()
        elif character not in "*+?":
            last = 1
        groups[-1] = max(groups[-1], last)
    return max(groups)


def _nodes(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every object of a schema and the path before its keys, except those in values that it quotes."""
    left: list[tuple[str, Any, bool]] = [("", schema, False)]
    while left:
        path, node, named = left.pop()
        if isinstance(node, dict):
            yield path, node
            inner = [(key, value) for key, value in node.items() if named or key not in QUOTED]
            left += [(f"{path}{key}.", value, not named and key in NAMED) for key, value in inner]
        elif isinstance(node, list):
            left += [(f"{path[:-1]}[{index}].", value, False) for index, value in enumerate(node)]


def _text_fault(path: str, node: Mapping[str, Any]) -> str:
    for key, value in node.items():
        if len(key) > LITERAL or (isinstance(value, str) and len(value) > LITERAL and key != "description"):
            return f"`{path}{key[:64]}` spells out a text of more than {LITERAL} characters"
        if isinstance(value, list) and any(isinstance(entry, str) and len(entry) > LITERAL for entry in value):
            return f"`{path}{key}` spells out a text of more than {LITERAL} characters"
    expressions = [node["pattern"]] if isinstance(node.get("pattern"), str) else []
    patterns = node.get("patternProperties")
    for expression in [*expressions, *(patterns if isinstance(patterns, dict) else ())]:
        if fault := regex_fault(expression):
            key = "pattern" if expression in expressions else "patternProperties"
            return f"`{path}{key}` is too costly: {fault}"
    return ""


def _width_fault(path: str, node: Mapping[str, Any]) -> str:
    named, required = node.get("properties"), node.get("required")
    if not isinstance(named, dict) or len(named) <= OPTIONAL:
        return ""
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    optional = len(named.keys() - needed)
    if optional <= OPTIONAL:
        return ""
    return f"`{path}properties` has {optional} that are not required, and at most {OPTIONAL} may follow one another"


def _size(number: str) -> int:
    """The digits of a decimal without its point and trailing zeros: 5 for 0.05 and 0.050, 10 for 10.0."""
    try:
        value = Decimal(number).normalize()
    except ArithmeticError:  # more digits in the exponent than any number has
        return MULTIPLE + 1
    digits, exponent = value.as_tuple()[1:]
    if not isinstance(exponent, int):  # infinite, or not a number
        return 1
    return int("".join(map(str, digits))) * 10 ** min(max(exponent, 0), 9) or 1


LONGEST = 1 << 16
"""The most characters of a grammar."""
WAYS = 512
"""The most parallel readings of Lark at one place (Earley items of a row). At 2,000 a token of `s: s s s | s s | "a" |`
takes 0.4 s, at 512 a few ms, and a language of 256 alternatives still fits."""
STATES = 1 << 15
"""The most states of a grammar's lexer, which is built while texts are read: some 25 MB, for up to
`grammar_matcher.COMPILED`. At the library's 250,000 one expression takes 200 MB. Requests with a grammar share them."""
FUEL, STEP_FUEL, STEP_ITEMS = 200_000, 100_000, 20_000
"""Limits in the library's own units: to build a lexer, and to make one mask. 20 to 40 ms, and 10 ms, on one core; at
the library's 1,000,000, 200,000 and 50,000 `(a{1000}){1000}` takes 0.7 s and 200 MB."""
FIRST_S = 0.025
"""CPU time for the first mask, which no limit of the library bounds: 0.1 s for a forced text of a million letters, and
all choices of a request need it in one step. Common grammars take less than 1 ms."""
_DEEPEST = 64
_HUGE = "a number in the schema is beyond 1.8e308, the largest that is read; send a smaller one"
_SPACES: Any = {"whitespace_pattern": " ?"}
NOTHING = "NoExtensionBias"
"""The library's word for a state in which no byte may come next and the text may not end."""


def check(grammar: str, tokenizer: LLTokenizer | None = None, cpu: Callable[[], float] = time.thread_time) -> str:
    """Why a grammar cannot be followed, in words for the client; "" if it can. Without a tokenizer, works on bytes.

    Takes as long as the library does, which may be minutes. `cpu`: seconds that this thread has computed.
    """
    if len(grammar) > LONGEST:
        return too_long(len(grammar))
    try:
        wrong, notes = LLMatcher.validate_grammar_with_warnings(source(grammar), limits=_limits(grammar))
    except ValueError as error:
        return _HUGE if "number out of range" in str(error) else str(error)
    if wrong:
        return _placed("; ".join(notes), grammar)
    if any("no tokenizer" in note for note in notes) and not grammar.startswith("calls:"):
        return "a grammar must not name special tokens"
    return _stuck(matcher(tokenizer or _bytes(), grammar), cpu)


def too_long(characters: int) -> str:
    """The refusal of a grammar with too many characters."""
    return f"it has {characters} characters; at most {LONGEST} are taken"


def source(grammar: str) -> str:
    """The grammar in llguidance's form. Raises ValueError if it is of no known kind, or known to be too costly."""
    kind, _, text = grammar.partition(":")
    match kind:
        case "json" if not text:
            return LLMatcher.grammar_from_json_schema('{"type": "object"}', defaults=_SPACES)
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(_schema(text), defaults=_SPACES)
        case "regex" if text:
            _refuse(regex_fault(text))
            return LLMatcher.grammar_from_regex(text)
        case "lark" if text:
            _refuse(lark_fault(text))
            return LLMatcher.grammar_from_lark(text)
        case "calls" if text:
            _refuse(lark_fault(text))
            return LLMatcher.grammar_from_lark("\n".join(map(_checked_line, text.split("\n"))))
    raise ValueError("a grammar is json, json_schema:<schema>, regex:<expression> or lark:<grammar>")


def matcher(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """A matcher over `tokenizer`'s tokens, possibly in error. Raises ValueError if the grammar's kind is unknown."""
    return LLMatcher(tokenizer, source(grammar), log_level=0, limits=_limits(grammar))


def _limits(grammar: str) -> LLParserLimits:
    return LLParserLimits(
        max_items_in_row=WAYS if grammar.startswith("lark:") else None,
        max_lexer_states=STATES,
        initial_lexer_fuel=FUEL,
        step_lexer_fuel=STEP_FUEL,
        step_max_items=STEP_ITEMS,
    )


def _refuse(fault: str) -> None:
    if fault:
        raise ValueError(fault)


def _placed(notes: str, grammar: str) -> str:
    """Why a grammar is wrong; for a schema, in the schema's own terms."""
    kind, _, text = grammar.partition(":")
    return in_words(notes, json.loads(text)) if kind == "json_schema" else notes


def _stuck(begin: LLMatcher, cpu: Callable[[], float]) -> str:
    """Why no text can begin, or not fast enough; "" if one can."""
    begun = cpu()
    if not begin.is_error():
        begin.compute_bitmask()
    reason = begin.get_error().partition("\n")[0]
    if not reason and cpu() - begun > FIRST_S:
        return f"its first token takes more than {1000 * FIRST_S:.0f} ms of a CPU; ask for less of it"
    return "it matches no text" if reason == NOTHING else reason


@cache
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")


def _checked_line(line: str) -> str:
    rule, mark, schema = line.partition("%json ")
    return f"{rule}{mark}{_schema(schema)}" if mark else line


def _schema(text: str) -> str:
    """The schema serialized again: the library pastes it into a larger document, which it must not be able to close."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError("the schema must be a JSON object")  # noqa: TRY004 - the value is wrong, not a type in our code
    if _depth(schema) > _DEEPEST:
        raise ValueError(f"the schema is nested deeper than {_DEEPEST} levels")
    schema = readable(schema)
    _refuse(schema_fault(schema))
    return json.dumps(schema)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= _DEEPEST:
        depth += 1
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _inner(outer)]
    return depth


def _inner(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value
