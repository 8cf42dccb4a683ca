"""What structured output a request may ask for, as one string, and whether it can be followed. Needs no torch.

json                  any JSON object
json_schema:<schema>  JSON that fits the schema
regex:<expression>    text that the expression matches as a whole (Rust's syntax: no look-around, no back-references)
lark:<grammar>        text of a context-free grammar in llguidance's dialect of Lark, without special tokens

Both processes read a grammar with the same limits, so what `check` accepts in the API process the engine can compile.
JSON has at most one blank where JSON allows any, or a model that likes them would spend its tokens on them; a schema
says otherwise by its `x-guidance`, as in llguidance.
A grammar that can be read in ever more ways at once costs ever more a token, and all requests of the step wait for it:
so Lark has a lower limit of those ways than JSON, which is wide (a schema's optional properties) but never ambiguous.
A request whose grammar outgrows such a limit while it is followed is refused there (`matching`).
Known hole: a grammar may lead to where nothing can follow (a property that no value fits); its request then ends there.
"""

import json
from functools import cache, lru_cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

LONGEST = 1 << 16
"""Characters of a grammar."""
WAYS = 512
"""In which Lark may be read at one place (Earley items of a row). At 2,000 a token of `s: s s s | s s | "a" |` takes
0.4 s, at 512 a few ms, and a language of 256 alternatives still fits."""
STATES = 1 << 15
"""Of a grammar's lexer, which is built while texts are read: some 25 MB, and up to `matching.COMPILED` are kept. At the
library's 250,000 one expression takes 200 MB. All who follow a grammar share them."""
_DEEPEST = 64
_SPACES: Any = {"whitespace_pattern": " ?"}
_CHECKED = 64
NOTHING = "NoExtensionBias"
"""The library's word for: no byte may come next, and the text may not end."""


@lru_cache(_CHECKED)
def check(grammar: str) -> str:
    """Why a grammar cannot be followed, in words for the client; "" if it can."""
    if len(grammar) > LONGEST:
        return f"it has {len(grammar)} characters; at most {LONGEST} are taken"
    try:
        wrong, notes = LLMatcher.validate_grammar_with_warnings(source(grammar))
    except ValueError as error:
        return str(error)
    if wrong:
        return "; ".join(notes)
    if any("no tokenizer" in note for note in notes):
        return "a grammar must not name special tokens"
    return _stuck(grammar)


def source(grammar: str) -> str:
    """The same in the words of llguidance. Raises ValueError when it is none of the four."""
    kind, _, text = grammar.partition(":")
    match kind:
        case "json" if not text:
            return LLMatcher.grammar_from_json_schema('{"type": "object"}', defaults=_SPACES)
        case "json_schema":
            return LLMatcher.grammar_from_json_schema(_schema(text), defaults=_SPACES)
        case "regex" if text:
            return LLMatcher.grammar_from_regex(text)
        case "lark" if text:
            return LLMatcher.grammar_from_lark(text)
    raise ValueError("a grammar is json, json_schema:<schema>, regex:<expression> or lark:<grammar>")


def matcher(tokenizer: LLTokenizer, grammar: str) -> LLMatcher:
    """What follows it over the tokens of `tokenizer`, or is in error. Raises ValueError when it is none of the four."""
    ways = WAYS if grammar.startswith("lark:") else None
    limits = LLParserLimits(max_items_in_row=ways, max_lexer_states=STATES)
    return LLMatcher(tokenizer, source(grammar), log_level=0, limits=limits)


def _stuck(grammar: str) -> str:
    """Why no text can even begin; "" if one can, over bytes in the place of tokens."""
    begin = matcher(_bytes(), grammar)
    if not begin.is_error():
        begin.compute_bitmask()
    reason = begin.get_error().partition("\n")[0]
    return "it matches no text" if reason == NOTHING else reason


@cache
def _bytes() -> LLTokenizer:
    return LLTokenizer("byte")


def _schema(text: str) -> str:
    """The schema written anew: the library pastes it into a larger document, which it must not be able to close."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError("the schema must be a JSON object")  # noqa: TRY004 - it is the value that is wrong
    if _depth(schema) > _DEEPEST:
        raise ValueError(f"the schema is nested deeper than {_DEEPEST} levels")
    return json.dumps(schema)


def _depth(value: Any) -> int:
    depth, level = 0, [value]
    while level and depth <= _DEEPEST:
        depth += 1
        level = [inner for outer in level if isinstance(outer, dict | list) for inner in _inner(outer)]
    return depth


def _inner(value: dict[str, Any] | list[Any]) -> list[Any]:
    return list(value.values()) if isinstance(value, dict) else value
