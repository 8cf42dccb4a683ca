"""Parses tool calls in a stream of text: takes text piece by piece, returns content and calls.

A call is returned whole, when its last character has arrived. So a call that turns out malformed, unfinished or of a
function that was not offered is content, every character of it, and the result depends on the text alone and not on its
pieces. Blanks next to a call are dropped.
"""

import json
from collections.abc import Set
from dataclasses import dataclass
from typing import Any, Protocol

Names = Set[str]
_decoder = json.JSONDecoder()


@dataclass(frozen=True, slots=True)
class Call:
    """A function's name and its arguments as JSON text of an object. `id`: the model's own, "" if it writes none."""

    name: str
    arguments: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class CallStart:
    """The first `content` characters of a text are plain; a call's words begin at `start`, None if none has begun.

    The text between the two opens or separates calls. Without a `start`, text after `content` may still become a call.
    """

    content: int
    start: int | None = None


@dataclass(frozen=True, slots=True)
class ParsedCalls:
    """The first `size` characters of the words are these calls; without any calls, the words were no call."""

    calls: tuple[Call, ...]
    size: int


@dataclass(frozen=True, slots=True)
class Syntax:
    """A format for use in a grammar: `opening`, an object of `name` and `key` (or a list of them), `closing`.

    With `named`, the bare function name comes between `opening` and `middle`, and its arguments follow.
    """

    opening: str
    closing: str = ""
    key: str = "arguments"
    listed: bool = False
    named: bool = False
    middle: str = ""


class ToolCallFormat(Protocol):
    """How one model family writes calls."""

    @property
    def markers(self) -> tuple[str, ...]:
        """The texts that open and separate calls; they may be special tokens."""
        ...

    @property
    def syntax(self) -> Syntax:
        """The format for use in a grammar."""
        ...

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:
        """Where calls may begin. `fresh`: no content came before; `called`: a call came right before."""
        ...

    def read(self, words: str, names: Names, *, final: bool) -> ParsedCalls | None:
        """The calls at the start of `words`; None if more text is needed, never if `final`."""
        ...

    def call_id(self, random: str) -> str:
        """An id that this family's template accepts, from 24 random letters and digits."""
        ...


def call_of(value: Any, names: Names) -> Call | None:
    """The call in `{"name": ..., "arguments" or "parameters": {...}}`, if its function was offered."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str) or value["name"] not in names:
        return None
    arguments = value.get("arguments", value.get("parameters", {}))
    return Call(value["name"], json.dumps(arguments, ensure_ascii=False)) if isinstance(arguments, dict) else None


def value_at(text: str, start: int) -> tuple[Any, int] | None:
    """The JSON value at `start` and where it ends; None if no complete value is there."""
    try:
        return _decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None


def marked(text: str, marker: str, *, final: bool) -> CallStart:
    """Where `marker` opens a call, anywhere in `text`."""
    at = text.find(marker)
    if at >= 0:
        return CallStart(at, at + len(marker))
    return CallStart(len(text) - (0 if final else overlap(text, marker)))


def overlap(text: str, marker: str) -> int:
    """Length of the longest suffix of `text` that is a prefix of `marker`."""
    longest = min(len(text), len(marker) - 1)
    return next((size for size in range(longest, 0, -1) if marker.startswith(text[-size:])), 0)


Part = str | Call
_CLOSERS = frozenset("}]>")


class CallParser:
    """Takes text, returns its parts in order. Consecutive strings are one content."""

    def __init__(self, form: ToolCallFormat, names: Names) -> None:
        self._form = form
        self._names = names
        self._held = ""
        self._start: int | None = None
        self._blank = ""
        self._fresh = True
        self._called = False

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain now."""
        self._held += text
        if self._start is not None and _CLOSERS.isdisjoint(text):
            return []  # inside a call, and the new text cannot end it
        return self._parts(final=False)

    def flush(self) -> list[Part]:
        """The text has ended."""
        parts = self._parts(final=True)
        blank, self._blank = self._blank, ""
        return [*parts, blank] if blank and not self._called else parts

    def _parts(self, *, final: bool) -> list[Part]:
        parts: list[Part] = []
        while self._held:
            if self._start is None and not self._open(parts, final=final):
                break
            read = self._form.read(self._held[self._start :], self._names, final=final)
            if read is None:
                break
            size = (self._start or 0) + read.size
            if read.calls:
                parts += read.calls
                self._blank, self._called = "", True
            else:
                parts += self._content(self._held[:size])
            self._held, self._start = self._held[size:], None
        return parts

    def _open(self, parts: list[Part], *, final: bool) -> bool:
        """Return plain text; True if a call begins."""
        found = self._form.find(self._held, fresh=self._fresh, called=self._called, final=final)
        parts += self._content(self._held[: found.content])
        self._held = self._held[found.content :]
        self._start = None if found.start is None else found.start - found.content
        return self._start is not None

    def _content(self, text: str) -> list[Part]:
        text = self._blank + text
        content = text.rstrip()
        self._blank = text[len(content) :]
        if content:
            self._fresh = self._called = False
        return [content] if content else []
