"""Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, and since v11 `[TOOL_CALLS]name[ARGS]{...}`.

Its templates take ids of nine letters and digits alone.
"""

import json
import re

from paceline_workers.server.tools.calls import Call, Found, Names, Read, call_of, marked, value_at

_NAMED = re.compile(r"\s*([A-Za-z0-9_.-]{1,64})\s*(?:\[ARGS\])?\s*(?=\{)")
_ID_LENGTH = 9


class Mistral:
    """A marker, then a list or one call."""

    marker = "[TOOL_CALLS]"

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> Found:  # noqa: ARG002 - the marker is enough
        """Behind the marker, wherever it is."""
        return marked(text, self.marker, final=final)

    def read(self, words: str, names: Names, *, final: bool) -> Read | None:
        """The list, or the name and its object."""
        read = _list(words, names) if words.lstrip().startswith("[") else _named(words, names)
        return read or (Read((), len(words)) if final else None)

    def call_id(self, random: str) -> str:
        """Nine letters and digits."""
        return random[:_ID_LENGTH]


def _list(words: str, names: Names) -> Read | None:
    found = value_at(words, len(words) - len(words.lstrip()))
    if found is None:
        return None
    calls = [call_of(value, names) for value in found[0]]
    return Read(tuple(call for call in calls if call) if all(calls) else (), found[1])


def _named(words: str, names: Names) -> Read | None:
    name = _NAMED.match(words)
    found = value_at(words, name.end()) if name else None
    if name is None or found is None:
        return None
    call = Call(name[1], json.dumps(found[0], ensure_ascii=False))
    return Read((call,) if call.name in names else (), found[1])
