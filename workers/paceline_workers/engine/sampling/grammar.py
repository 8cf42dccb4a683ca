"""What structured output a request may ask for, as one string, and whether it can be followed. Needs no torch.

json                  any JSON object
json_schema:<schema>  JSON that fits the schema
regex:<expression>    text that the expression matches as a whole (Rust's syntax: no look-around, no back-references)
lark:<grammar>        text of a context-free grammar in llguidance's dialect of Lark, without special tokens
calls:<grammar>       the same, made by the server out of a client's schemas: an answer or tool calls

Who checks a grammar and the engine read it with the same limits, and over the same tokens where `check` is given them:
so what is accepted the engine can compile, and what would outgrow a limit at its very start never gets there. What is
known to take the library seconds is refused before it looks (`grammar_bounds`); a check may still take as long as it
likes, so it runs in a process that can be ended (`paceline_workers.server.grammar.process`).
JSON has at most one blank where JSON allows any, or a model that likes them would spend its tokens on them; a schema
says otherwise by its `x-guidance`, as in llguidance.
A grammar that can be read in ever more ways at once costs ever more a token, and all requests of the step wait for it:
so Lark has a lower limit of those ways than JSON, which is wide (a schema's optional properties) but never ambiguous.
A request whose grammar outgrows such a limit while it is followed is refused there (`matching`).
Known hole: a grammar may lead to where nothing can follow (a property that no value fits); its request then ends there.
"""

import json
import time
from collections.abc import Callable
from functools import cache
from typing import Any

from llguidance import LLMatcher, LLParserLimits, LLTokenizer

from paceline_workers.engine.sampling.grammar_bounds import lark_fault, regex_fault, schema_fault
from paceline_workers.engine.sampling.json_schema import in_words, readable

LONGEST = 1 << 16
"""Characters of a grammar."""
WAYS = 512
"""In which Lark may be read at one place (Earley items of a row). At 2,000 a token of `s: s s s | s s | "a" |` takes
0.4 s, at 512 a few ms, and a language of 256 alternatives still fits."""
STATES = 1 << 15
"""Of a grammar's lexer, which is built while texts are read: some 25 MB, and up to `matching.COMPILED` are kept. At the
library's 250,000 one expression takes 200 MB. All requests with a grammar share them."""
FUEL, STEP_FUEL, STEP_ITEMS = 200_000, 100_000, 20_000
"""Of the library, in its own units: to build a lexer, and to make one mask. 20 to 40 ms, and 10 ms, on one core; at its
own 1,000,000, 200,000 and 50,000 `(a{1000}){1000}` takes 0.7 s and 200 MB."""
FIRST_S = 0.025
"""Of CPU time for the first mask, which no limit of the library bounds: 0.1 s where a text of a million letters is
forced, and all choices of a request need it in one step. Common grammars take less than 1 ms."""
_DEEPEST = 64
_HUGE = "a number in the schema is beyond 1.8e308, the largest that is read; send a smaller one"
_SPACES: Any = {"whitespace_pattern": " ?"}
NOTHING = "NoExtensionBias"
"""The library's word for: no byte may come next, and the text may not end."""


def check(grammar: str, tokenizer: LLTokenizer | None = None, cpu: Callable[[], float] = time.thread_time) -> str:
    """Why a grammar cannot be followed, in words for the client; "" if it can. Over bytes where no tokenizer is given.

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
    """What is said of a grammar of so many."""
    return f"it has {characters} characters; at most {LONGEST} are taken"


def source(grammar: str) -> str:
    """The same in the words of llguidance. Raises ValueError when it is none of these, or known to be too costly."""
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
    """What follows it over the tokens of `tokenizer`, or is in error. Raises ValueError when it is none of these."""
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
    """Why a grammar is wrong, of a schema in its own words."""
    kind, _, text = grammar.partition(":")
    return in_words(notes, json.loads(text)) if kind == "json_schema" else notes


def _stuck(begin: LLMatcher, cpu: Callable[[], float]) -> str:
    """Why no text can even begin, or not soon enough; "" if one can."""
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
    """The schema written anew: the library pastes it into a larger document, which it must not be able to close."""
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"the schema is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError("the schema must be a JSON object")  # noqa: TRY004 - it is the value that is wrong
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
