"""The formats in which model families write tool calls, and which of them a model uses.

Mistral: `[TOOL_CALLS] [{"name": ..., "arguments": {...}}, ...]`, and since v11 `[TOOL_CALLS]name[ARGS]{...}`. Small 3.2
also writes an id: `[TOOL_CALLS]name[CALL_ID]id[ARGS]{...}`. Its templates accept only ids of nine letters and digits.

Hermes and Qwen 2.5 and 3: `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, one pair of tags for each call.
A last call without its closing tag counts if its JSON is complete.

Llama 3.1 to 3.3: the whole answer is `{"name": ..., "parameters": {...}}`, several of them separated by `;`.
`<|python_tag|>` may come first, which the templates of 3.2 do not support. Only an answer that begins with a call has
calls: an object after other text is text. Known hole: an answer that begins with a brace but is not JSON is held back
until its end.

The chat template determines the format: it is rendered over a conversation with one call, and the text before the
call's argument identifies the format. The markers alone would not: templates of several families write other things
between the same tags. Known hole: a template that shows no earlier calls has no format, and its model gets no tools.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from paceline_core.errors import RequestError
from paceline_workers.server.tools.parser import (
    Call,
    CallStart,
    Names,
    ParsedCalls,
    Syntax,
    ToolCallFormat,
    call_of,
    marked,
    value_at,
)

_HERMES_OPEN, _HERMES_CLOSE = "<tool_call>", "</tool_call>"


class Hermes:
    """JSON between tags."""

    markers = (_HERMES_OPEN, _HERMES_CLOSE)
    syntax = Syntax(f"{_HERMES_OPEN}\n", f"\n{_HERMES_CLOSE}")

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:  # noqa: ARG002 - tags are enough
        """After the opening tag, at any position."""
        return marked(text, _HERMES_OPEN, final=final)

    def read(self, words: str, names: Names, *, final: bool) -> ParsedCalls | None:
        """The call between the tags."""
        end = words.find(_HERMES_CLOSE)
        if end < 0 and not final:
            return None
        body, size = (words, len(words)) if end < 0 else (words[:end], end + len(_HERMES_CLOSE))
        try:
            call = call_of(json.loads(body), names)
        except (ValueError, RecursionError):
            call = None
        return ParsedCalls((call,) if call else (), size)

    def call_id(self, random: str) -> str:
        """An id like OpenAI's."""
        return f"call_{random}"


_BETWEEN = " \t\r\n;"
_TAG = "<|python_tag|>"


class Llama:
    """JSON without markers."""

    markers = (_TAG,)
    syntax = Syntax("", key="parameters")

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:
        """At a brace or the tag at the very start of the answer, or after a call."""
        if not fresh:
            return CallStart(len(text))
        begin = len(text) - len(text.lstrip(_BETWEEN if called else None))
        rest = text[begin:]
        if rest.startswith((_TAG, "{")):
            return CallStart(0, begin + (len(_TAG) if rest[0] == "<" else 0))
        if final:
            return CallStart(0 if called and not rest else len(text))
        return CallStart(0 if _TAG.startswith(rest) else len(text))

    def read(self, words: str, names: Names, *, final: bool) -> ParsedCalls | None:
        """The object at the start of the words."""
        begin = len(words) - len(words.lstrip())
        found = value_at(words, begin)
        if found is None:
            return ParsedCalls((), len(words)) if final else None
        call = call_of(found[0], names)
        return ParsedCalls((call,) if call else (), found[1])

    def call_id(self, random: str) -> str:
        """An id like OpenAI's."""
        return f"call_{random}"


_NAMED = re.compile(r"\s*([A-Za-z0-9_.-]{1,64})\s*(?:\[CALL_ID\]\s*(\w{1,64})\s*)?(?:\[ARGS\])?\s*(?=\{)")
_MISTRAL_OPEN, _CALL_ID, _ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
_ID_LENGTH = 9


class Mistral:
    """A marker, then a list or one call; it reads both, and `named` says which one the model's template shows."""

    markers = (_MISTRAL_OPEN, _CALL_ID, _ARGS)

    def __init__(self, *, named: bool = False) -> None:
        self.syntax = Syntax(_MISTRAL_OPEN, named=True, middle=_ARGS) if named else Syntax(_MISTRAL_OPEN, listed=True)

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:  # noqa: ARG002 - the marker is enough
        """After the marker, at any position."""
        return marked(text, _MISTRAL_OPEN, final=final)

    def read(self, words: str, names: Names, *, final: bool) -> ParsedCalls | None:
        """The list, or the name and its object."""
        read = _listed(words, names) if words.lstrip().startswith("[") else _named(words, names)
        return read or (ParsedCalls((), len(words)) if final else None)

    def call_id(self, random: str) -> str:
        """Nine letters and digits."""
        return random[:_ID_LENGTH]


def _listed(words: str, names: Names) -> ParsedCalls | None:
    found = value_at(words, len(words) - len(words.lstrip()))
    if found is None:
        return None
    calls = []
    for value in found[0]:
        call = call_of(value, names)
        if call is None:
            return ParsedCalls((), found[1])
        own = value.get("id")
        calls.append(replace(call, id=own) if isinstance(own, str) and _taken(own) else call)
    return ParsedCalls(tuple(calls), found[1])


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


Render = Callable[[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]], str]
_NAME, _ID, _VALUE = "paceline_probe", "paceline1", "paceline probes its template"
_PROPERTIES = {"place": {"type": "string", "description": "A place."}}
_PARAMETERS = {"type": "object", "properties": _PROPERTIES, "required": ["place"]}
PROBE_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {"name": _NAME, "description": "Probe.", "parameters": _PARAMETERS},
}
_CALL = {"id": _ID, "type": "function", "function": {"name": _NAME, "arguments": {"place": _VALUE}}}
_PROBE = (
    {"role": "user", "content": "Hello"},
    {"role": "assistant", "content": "", "tool_calls": [_CALL]},
    {"role": "tool", "content": "{}", "name": _NAME, "tool_call_id": _ID},
)
_ARGUMENT = r'\{\s*"place":\s*"$'
_OBJECT = rf'\{{\s*"name":\s*"{_NAME}",\s*"%s":\s*{_ARGUMENT}'
_FORMS: tuple[tuple[re.Pattern[str], ToolCallFormat], ...] = tuple(
    (re.compile(pattern), form)
    for pattern, form in (
        (r"<tool_call>\s*" + _OBJECT % "arguments", Hermes()),
        (r"\[TOOL_CALLS\]\s*\[\s*" + _OBJECT % "arguments", Mistral()),
        (rf"\[TOOL_CALLS\]{_NAME}(?:\[CALL_ID\]{_ID})?(?:\[ARGS\])?\s*{_ARGUMENT}", Mistral(named=True)),
        (r"(?:<\|python_tag\|>|<\|end_header_id\|>)\s*" + _OBJECT % "parameters", Llama()),
    )
)


def format_of(render: Render) -> ToolCallFormat | None:
    """None for a template that does not support tools, or shows calls in an unknown format."""
    try:
        shown = render(_PROBE, [PROBE_TOOL])
    except RequestError:
        return None
    before, found, _ = shown.rpartition(_VALUE)
    return next((form for pattern, form in _FORMS if pattern.search(before)), None) if found else None
