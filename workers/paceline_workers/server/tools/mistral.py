"""Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, and since v11 `[TOOL_CALLS]name[ARGS]{...}`.

Small 3.2 writes an id too: `[TOOL_CALLS]name[CALL_ID]id[ARGS]{...}`. Its templates take ids of nine letters and digits
alone.
"""

import json
import re
from dataclasses import replace
from typing import Any

from paceline_workers.server.tools.calls import Call, CallStart, Names, ParsedCalls, Syntax, call_of, marked, value_at

_NAMED = re.compile(r"\s*([A-Za-z0-9_.-]{1,64})\s*(?:\[CALL_ID\]\s*(\w{1,64})\s*)?(?:\[ARGS\])?\s*(?=\{)")
_OPEN, _ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_ID_LENGTH = 9


class Mistral:
    """A marker, then a list or one call; both are read, and `named` says which one the model's template shows."""

    markers = (_OPEN, _ID, _ARGS)

    def __init__(self, *, named: bool = False) -> None:
        self.syntax = Syntax(_OPEN, named=True, middle=_ARGS) if named else Syntax(_OPEN, listed=True)

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:  # noqa: ARG002 - the marker is enough
        """Behind the marker, wherever it is."""
        return marked(text, _OPEN, final=final)

    def read(self, words: str, names: Names, *, final: bool) -> ParsedCalls | None:
        """The list, or the name and its object."""
        read = _list(words, names) if words.lstrip().startswith("[") else _named(words, names)
        return read or (ParsedCalls((), len(words)) if final else None)

    def call_id(self, random: str) -> str:
        """Nine letters and digits."""
        return random[:_ID_LENGTH]


def _list(words: str, names: Names) -> ParsedCalls | None:
    found = value_at(words, len(words) - len(words.lstrip()))
    if found is None:
        return None
    calls = [_with_id(value, call_of(value, names)) for value in found[0]]
    return ParsedCalls(tuple(call for call in calls if call) if all(calls) else (), found[1])


def _with_id(value: Any, call: Call | None) -> Call | None:
    own = value.get("id") if call else None
    return replace(call, id=own) if call and isinstance(own, str) and _taken(own) else call


def _taken(own: str) -> bool:
    return len(own) == _ID_LENGTH and own.isascii() and own.isalnum()


def _named(words: str, names: Names) -> ParsedCalls | None:
    name = _NAMED.match(words)
    found = value_at(words, name.end()) if name else None
    if name is None or found is None:
        return None
    own = name[2] or ""
    call = Call(name[1], json.dumps(found[0], ensure_ascii=False), own if _taken(own) else "")
    return ParsedCalls((call,) if call.name in names else (), found[1])
