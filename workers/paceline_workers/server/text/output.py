"""Turns the engine's tokens into what a client receives: text, finish reason, counts. Pure: tokens in, pieces out.

Tokens go through the detokenizer, the stop matcher and the filters. Text may lag behind its tokens (an incomplete
character, a possible stop string, text that a filter holds), so a piece carries all ids since the previous piece, even
if part of their text is still to come.

All pieces joined together are the text of all tokens. A token is not always a piece of text: a character may span
several tokens, and some decoders look at neighbouring tokens. So the detokenizer decodes a short window of the last
tokens again with each new one, and cuts off the text that it returned before. U+FFFD at the end may be the first bytes
of an incomplete character, so it waits; a character has at most 4 bytes, so after more than HELD tokens without a clean
end it is not text, and is returned. The window drops its older half wherever the rest still decodes to the end of the
same text. The first window holds the end of the prompt: decoders of SentencePiece's kind drop a blank at the start of a
text, and an answer does not start one. So prompt and answer joined are the text of all tokens, with any tokenizer.

Invariant: a piece is never taken back. Known hole: a byte-fallback decoder turns a whole run of bytes into U+FFFD when
the run turns out not to be UTF-8; text that was returned before stays, as in every streaming server.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import PromptLogprob, Timing, Tokens
from paceline_workers.server.filters.runner import Filters
from paceline_workers.server.text.reasoning import ReasoningMarkers, ReasoningSplitter, ReasoningStart
from paceline_workers.server.tools.parser import overlap

Decode = Callable[[Sequence[int]], str]

WINDOW = 16
CONTEXT = (8, 9, 10, 11, 16, 64, 256)
"""How many tokens of a prompt to decode: the first number whose text does not begin within a character."""
HELD = 3
TRIES = 8
RETRY_AFTER_S = 1.0
_UNKNOWN = "\ufffd"


class Detokenizer:
    """The text of one output after the prompt `before`. `decode` turns ids into text as the model's tokenizer does."""

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
        """The text that is certain now and was not returned before."""
        self._fed = True
        self._window += ids
        self._text = self._decode(self._window)
        unknown = len(self._text) - len(self._text.rstrip(_UNKNOWN))
        coming = unknown > 0 and any(
            not self._decode(self._window[:-back]).endswith(_UNKNOWN) for back in range(1, HELD + 1)
        )
        end = len(self._text) - (unknown if coming else min(unknown, HELD))
        piece, self._given = self._text[self._given : end], max(self._given, end)
        if len(self._window) >= WINDOW and not coming:
            self._shorten()
        return piece

    def flush(self) -> str:
        """The rest: no token follows, so an incomplete character becomes U+FFFD."""
        if not self._fed:
            return ""
        rest, self._given = self._text[self._given :], max(self._given, len(self._text))
        return rest

    def _shorten(self) -> None:
        """Move the window's start, but not into its last tokens: they may hold bytes of an incomplete character."""
        half = len(self._window) // 2
        for start in range(half, min(half + TRIES, len(self._window) - HELD)):
            rest = self._decode(self._window[start:])
            dropped = len(self._text) - len(rest)
            if rest and dropped <= self._given and self._text.endswith(rest):
                self._window, self._text, self._given = self._window[start:], rest, self._given - dropped
                return


def recent(decode: Decode, ids: Sequence[int]) -> Sequence[int]:
    """The last tokens of a prompt: as few as show how text continues after them."""
    for count in CONTEXT:
        text = decode(ids[-count:])
        if count >= len(ids) or (text and not text.startswith(_UNKNOWN)):
            return ids[-count:]
    return ids[-CONTEXT[-1] :]


class StopMatcher:
    """Takes pieces of text, returns the text before any stop string, or with `included` up to the end of one.

    Text that could still become a stop string is held back. The text ends where the first stop string is complete (of
    several that complete at the same character, the longest wins), so the result depends on the text alone, not on how
    it was split into pieces. `matched` is that stop string.
    """

    def __init__(self, stops: Sequence[str], *, included: bool = False) -> None:
        self._stops = tuple(stops)
        self._included = included
        self._held = ""
        self.matched = ""

    def feed(self, piece: str) -> str:
        """Text that certainly passes; nothing after a match."""
        if self.matched:
            return ""
        self._held += piece
        found = [(at + len(stop), at, stop) for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if found:
            after, before, self.matched = min(found)
            end = after if self._included else before
        else:
            end = len(self._held) - max((overlap(self._held, stop) for stop in self._stops), default=0)
        out, self._held = self._held[:end], self._held[end:]
        return out

    def flush(self) -> str:
        """The text has ended: what was held back is not a stop string."""
        out, self._held = "" if self.matched else self._held, ""
        return out


Logprob = tuple[float, list[tuple[int, float]]]


@dataclass(frozen=True, slots=True)
class Piece:
    """New output. `ids` begin at `position`; `finish` is "" while running, else stop, length or content_filter.

    `reasoning` comes before `text`. `stop`: the stop string that ended it.
    """

    text: str
    position: int
    ids: list[int]
    finish: str
    logprobs: list[Logprob]
    reasoning: str = ""
    stop: str = ""


class TextOutput:
    """One sequence's output so far, after the prompt `before`.

    `include_stop`: the stop string or token that ends the text is part of it. Stop strings count only after the
    reasoning; filters also judge the reasoning, separately from the text.
    """

    def __init__(  # noqa: PLR0913 - what a request specifies about its text
        self,
        decode: Decode,
        *,
        before: Sequence[int] = (),
        stops: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        filters: Filters | None = None,
        reasoning: ReasoningMarkers | None = None,
        reasoning_filters: Filters | None = None,
        include_reasoning: bool = True,
    ) -> None:
        self._detokenizer = Detokenizer(decode, before)
        self._stops = StopMatcher(stops, included=include_stop)
        self._include_stop = include_stop
        self._stoppable = bool(stops)
        self._min_tokens = min_tokens
        self._filters = filters
        self._splitter = ReasoningSplitter(reasoning)
        self._reasoning_filters = reasoning_filters
        self._reasoning = ""
        self._include_reasoning = include_reasoning
        self.reasons = reasoning is not None
        self.reasoning_tokens = 0
        self._ids: list[int] = []
        self._logprobs: list[Logprob] = []
        self.prompt_logprobs: list[PromptLogprob] = []
        self.tokens = 0
        self.cached = 0
        self.timing: Timing | None = None

    def feed(self, frames: Sequence[Tokens]) -> Piece | None:
        """The piece that these frames make, None without text. Raises RequestError if the engine gave up."""
        text, finish = "", ""
        for frame in frames:
            self.prompt_logprobs += frame.prompt_logprobs
            text += self._text(frame)
            self.cached, self.timing = frame.cached or self.cached, frame.timing or self.timing
            if not self.stopped and (error := gave_up(frame)):
                raise error
            finish = self.stopped or frame.finish
            if finish:
                text += self._rest()
                finish = self.stopped or finish
                break
        if not (text or finish or self._reasoning):
            return None
        ids, logprobs, reasoning = self._ids, self._logprobs, self._reasoning
        self._ids, self._logprobs, self._reasoning = [], [], ""
        return Piece(text, self.tokens - len(ids), ids, finish, logprobs, reasoning, self._stops.matched)

    def replay(self, ids: Sequence[int], finish: str = "") -> Piece:
        """Process the output from before a resumption, as one piece. `finish` as with the last frame."""
        place = self.tokens
        piece = self.feed([Tokens("", place, list(ids), finish)])
        self._ids, self._logprobs = [], []
        text, reasoning = (piece.text, piece.reasoning) if piece else ("", "")
        return Piece(text, place, list(ids), finish or self.stopped, [], reasoning, self._stops.matched)

    @property
    def stopped(self) -> str:
        """The finish reason if a filter or a stop string has ended the text, else ""."""
        for filters in (self._filters, self._reasoning_filters):
            if filters is not None and filters.ended:
                return "content_filter"
        return "stop" if self._stops.matched else ""

    def _text(self, frame: Tokens) -> str:
        """Certain text of a frame, computed token by token so that it does not depend on how tokens form frames."""
        hidden = frame.finish == "stop" and not self._include_stop
        shown = len(frame.ids) - hidden  # the token that stops counts, but is not text
        text = ""
        for index, token in enumerate(frame.ids):
            self.tokens += 1
            self._ids.append(token)
            if index < shown:
                self._logprobs += frame.logprobs[index : index + 1]
                new = self._detokenizer.feed([token])
                if self._splitter.state is not ReasoningStart.OUTSIDE:
                    new = self._split(*self._splitter.feed(new))
                if self._stoppable and self.tokens > self._min_tokens:
                    new = self._stops.feed(new)
                text += new if self._filters is None else self._filters.feed(new)
            if self.stopped:
                break
        return text

    def _split(self, reasoning: str, content: str) -> str:
        """The content. A token counts as reasoning if it ends the reasoning or if the text after it is within it."""
        state = self._splitter.state
        ended = state is ReasoningStart.OUTSIDE
        if state is ReasoningStart.INSIDE or reasoning or (ended and self.reasoning_tokens):
            self.reasoning_tokens += 1
        self._think(reasoning, last=ended)
        return content

    def _think(self, text: str, *, last: bool) -> None:
        if self._reasoning_filters is not None:
            text = self._reasoning_filters.feed(text, last=last)
        self._reasoning += text if self._include_reasoning else ""

    def _rest(self) -> str:
        """The text that was held back, at the end of the output."""
        rest = self._detokenizer.flush()
        if self._splitter.state is not ReasoningStart.OUTSIDE:
            (thought, spoken), (late, words) = self._splitter.feed(rest), self._splitter.flush()
            self._think(thought + late, last=True)
            rest = spoken + words
        rest = self._stops.feed(rest) + self._stops.flush()
        return rest if self._filters is None else self._filters.feed(rest, last=True)


def gave_up(frame: Tokens) -> RequestError | None:
    """The error for the client if the engine ended a sequence without an answer."""
    match frame.finish:
        case "error":
            return RequestError(Code.ENGINE_FAILED, frame.error or "The engine failed on this request.")
        case "abort":
            return RequestError(Code.HELD_TIMEOUT, frame.error or "The deadline passed before the answer was complete.")
        case "refused":
            return RequestError(Code.INVALID_REQUEST, frame.error)
        case "queue_full":
            return RequestError(Code.QUEUE_FULL, frame.error, retry_after=RETRY_AFTER_S)
    return None
