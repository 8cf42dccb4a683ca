"""From the engine's tokens to what a client gets: text, finish reason, counts. Pure: tokens in, pieces out.

Tokens go through the detokenizer and the stop matcher; text may lag behind its tokens (an open character, a possible
stop string), so a piece carries all ids since the piece before it, whether or not their whole text is in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Timing, Tokens
from paceline_workers.server.detokenize import Decode, Detokenizer
from paceline_workers.server.stops import StopMatcher

Logprob = tuple[float, list[tuple[int, float]]]


@dataclass(frozen=True, slots=True)
class Piece:
    """New output. `ids` begin at `position`; `finish` is "" while running, else stop or length."""

    text: str
    position: int
    ids: list[int]
    finish: str
    logprobs: list[Logprob]


class Output:
    """One sequence's output so far."""

    def __init__(self, decode: Decode, *, stops: Sequence[str] = (), min_tokens: int = 0) -> None:
        self._detokenizer = Detokenizer(decode)
        self._stops = StopMatcher(stops)
        self._stoppable = bool(stops)
        self._min_tokens = min_tokens
        self._ids: list[int] = []
        self._logprobs: list[Logprob] = []
        self.tokens = 0
        self.cached = 0
        self.timing: Timing | None = None

    def feed(self, frames: Sequence[Tokens]) -> Piece | None:
        """The piece that these frames make, None without text. Raises RequestError when the engine gave up."""
        text, finish = "", ""
        for frame in frames:
            text += self._text(frame)
            finish = self._finish(frame)
            if finish:
                text += self._stops.feed(self._detokenizer.flush()) + self._stops.flush()
                finish = "stop" if self._stops.matched else finish
                break
        return self._piece(text, finish) if text or finish else None

    def _text(self, frame: Tokens) -> str:
        """Certain text of a frame; token by token where a stop string may end it in the middle."""
        shown = len(frame.ids) - (frame.finish == "stop")  # the token that stops is counted, but it is no text
        if not self._stoppable:
            self._count(frame, slice(None), shown)
            return self._detokenizer.feed(frame.ids[:shown])
        text = ""
        for index in range(len(frame.ids)):
            here = slice(index, index + 1)
            self._count(frame, here, shown)
            new = self._detokenizer.feed(frame.ids[:shown][here])
            text += self._stops.feed(new) if self.tokens > self._min_tokens else new
            if self._stops.matched:
                break
        return text

    def _count(self, frame: Tokens, part: slice, shown: int) -> None:
        ids = frame.ids[part]
        self.tokens += len(ids)
        self._ids += ids
        self._logprobs += frame.logprobs[:shown][part]

    def _finish(self, frame: Tokens) -> str:
        self.cached = frame.cached or self.cached
        self.timing = frame.timing or self.timing
        if self._stops.matched:
            return "stop"
        if frame.finish == "error":
            raise RequestError(Code.ENGINE_FAILED, frame.error or "The engine failed on this request.")
        if frame.finish == "abort":
            raise RequestError(Code.HELD_TIMEOUT, frame.error or "The deadline passed before the answer was complete.")
        return frame.finish

    def _piece(self, text: str, finish: str) -> Piece:
        piece = Piece(text, self.tokens - len(self._ids), self._ids, finish, self._logprobs)
        self._ids, self._logprobs = [], []
        return piece
