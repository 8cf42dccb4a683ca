"""Text in, content and calls out, piece by piece.

A call comes out whole, once its last character is there: so one that proves malformed, unfinished or of a function that
nobody offered is content, every character of it, and what comes out depends on the text alone and not on its pieces.
Blanks that touch a call are no content.
"""

from paceline_workers.server.tools.calls import Call, Names, ToolCallFormat

Part = str | Call
_CLOSERS = frozenset("}]>")


class CallParser:
    """Feed text; take parts out, in order. Two strings in a row are one content."""

    def __init__(self, form: ToolCallFormat, names: Names) -> None:
        self._form = form
        self._names = names
        self._held = ""
        self._start: int | None = None
        self._blank = ""
        self._fresh = True
        self._called = False

    def feed(self, text: str) -> list[Part]:
        """What is certain now."""
        self._held += text
        if self._start is not None and _CLOSERS.isdisjoint(text):
            return []  # inside a call, and nothing came that could end it
        return self._parts(final=False)

    def flush(self) -> list[Part]:
        """The text is over."""
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
        """Let plain text out; True where a call begins."""
        found = self._form.find(self._held, fresh=self._fresh, called=self._called, final=final)
        parts += self._content(self._held[: found.content])
        self._held = self._held[found.content :]
        self._start = None if found.start is None else found.start - found.content
        return self._start is not None

    def _content(self, text: str) -> list[Part]:
        text = self._blank + text
        told = text.rstrip()
        self._blank = text[len(told) :]
        if told:
            self._fresh = self._called = False
        return [told] if told else []
