"""Hermes and Qwen 2.5 and 3: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one pair of tags a call.

A last call whose closing tag is missing counts if its JSON is whole.
"""

import json
from typing import Any

from paceline_workers.server.tools.calls import CallStart, Names, ParsedCalls, Syntax, call_of, marked

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"


class Hermes:
    """Tags around JSON."""

    markers = (_OPEN, _CLOSE)
    syntax = Syntax(f"{_OPEN}\n", f"\n{_CLOSE}")

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:  # noqa: ARG002 - tags are enough
        """Behind the opening tag, wherever it is."""
        return marked(text, _OPEN, final=final)

    def read(self, words: str, names: Names, *, final: bool) -> ParsedCalls | None:
        """What is between the tags."""
        end = words.find(_CLOSE)
        if end < 0 and not final:
            return None
        body, size = (words, len(words)) if end < 0 else (words[:end], end + len(_CLOSE))
        call = call_of(_json(body), names)
        return ParsedCalls((call,) if call else (), size)

    def call_id(self, random: str) -> str:
        """As OpenAI's look."""
        return f"call_{random}"


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
