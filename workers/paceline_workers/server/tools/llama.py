"""Llama 3.1 to 3.3: the whole answer is `{"name": ..., "parameters": {...}}`, several of them separated by `;`.

`<|python_tag|>` may stand before, which the templates of 3.2 do not know. Only an answer that begins so is one: an
object after other text is text.
Known hole: an answer that begins with a brace and is no JSON is held back to its end.
"""

from paceline_workers.server.tools.calls import CallStart, Names, ParsedCalls, Syntax, call_of, value_at

_BETWEEN = " \t\r\n;"
_TAG = "<|python_tag|>"


class Llama:
    """Bare JSON."""

    markers = (_TAG,)
    syntax = Syntax("", key="parameters")

    def find(self, text: str, *, fresh: bool, called: bool, final: bool) -> CallStart:
        """A brace or the tag at the very begin, or behind a call."""
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
        """The object that the words begin with."""
        begin = len(words) - len(words.lstrip())
        found = value_at(words, begin)
        if found is None:
            return ParsedCalls((), len(words)) if final else None
        call = call_of(found[0], names)
        return ParsedCalls((call,) if call else (), found[1])

    def call_id(self, random: str) -> str:
        """As OpenAI's look."""
        return f"call_{random}"
