"""Token ids to text, piece by piece, so that the pieces put together are the text of the whole.

One token need not be one piece of text: a character may be split over tokens, and some decoders look at neighbours. So
a short window of the last tokens is decoded again with each new one, and what was already given out is cut off. U+FFFD
at the end may be the first bytes of a character that is still coming, hence it waits; a character has at most 4 bytes,
so after more than HELD tokens without a clean end it is no text, and need not wait longer.
The window loses its older half wherever the rest still decodes to the end of the same text.
The first window holds the end of the prompt: decoders of SentencePiece's kind drop a blank at the begin of a text, and
an answer is no begin. So prompt and answer put together are the text of all tokens, whatever their tokenizer.

Invariant: a piece is never taken back. Known hole: a byte-fallback decoder turns a whole run of bytes into U+FFFD when
the run proves not to be UTF-8; text given out before that stays, as for every streaming server.
"""

from collections.abc import Callable, Sequence

Decode = Callable[[Sequence[int]], str]

WINDOW = 16
CONTEXT = (8, 9, 10, 11, 16, 64, 256)
"""Tokens of a prompt that are looked at, until some have text that does not begin within a character."""
HELD = 3
TRIES = 8
_UNKNOWN = "\ufffd"


class Detokenizer:
    """One output's text behind the prompt `before`. `decode` turns ids into text as the model's tokenizer does."""

    def __init__(self, decode: Decode, before: Sequence[int] = ()) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._text = ""
        self._given = 0
        self._fed = False
        if before:
            self.feed(recent(decode, before))
            self._fed = False

    def feed(self, ids: Sequence[int]) -> str:
        """The text that is certain now and was not yet given out."""
        self._fed = True
        self._window += ids
        self._text = self._decode(self._window)
        unknown = len(self._text) - len(self._text.rstrip(_UNKNOWN))
        coming = unknown > 0 and any(self._clean_before(back) for back in range(1, HELD + 1))
        piece = self._take(len(self._text) - (unknown if coming else min(unknown, HELD)))
        if len(self._window) >= WINDOW and not coming:
            self._shorten()
        return piece

    def flush(self) -> str:
        """The rest: no token follows, so half a character is now U+FFFD."""
        return self._take(len(self._text)) if self._fed else ""

    def _clean_before(self, back: int) -> bool:
        return not self._decode(self._window[:-back]).endswith(_UNKNOWN)

    def _take(self, end: int) -> str:
        piece = self._text[self._given : end]
        self._given = max(self._given, end)
        return piece

    def _shorten(self) -> None:
        """Start the window later, but before its last tokens: those may hold the bytes of an open character."""
        half = len(self._window) // 2
        for start in range(half, min(half + TRIES, len(self._window) - HELD)):
            rest = self._decode(self._window[start:])
            dropped = len(self._text) - len(rest)
            if rest and dropped <= self._given and self._text.endswith(rest):
                self._window, self._text, self._given = self._window[start:], rest, self._given - dropped
                return


def recent(decode: Decode, ids: Sequence[int]) -> Sequence[int]:
    """The last tokens of a prompt: as few as show how a text goes on behind them."""
    for count in CONTEXT:
        text = decode(ids[-count:])
        if count >= len(ids) or (text and not text.startswith(_UNKNOWN)):
            return ids[-count:]
    return ids[-CONTEXT[-1] :]
