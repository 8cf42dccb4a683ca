"""From the engine's tokens to what a client gets: text, finish reason, counts. Pure: tokens in, pieces out.

Tokens go through the detokenizer, the stop matcher and the filters; text may lag behind its tokens (an open character,
a possible stop string, what a filter holds), so a piece carries all ids since the piece before it, whether or not their
whole text is in it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import PromptLogprob, Timing, Tokens
from paceline_workers.server.detokenize import Decode, Detokenizer
from paceline_workers.server.filters.hook import Filters
from paceline_workers.server.gate import RETRY_AFTER_S
from paceline_workers.server.reasoning import ReasoningMarkers, ReasoningSplitter
from paceline_workers.server.stops import StopMatcher

Logprob = tuple[float, list[tuple[int, float]]]


@dataclass(frozen=True, slots=True)
class Piece:
    """New output. `ids` begin at `position`; `finish` is "" while running, else stop, length or content_filter.

    `reasoning` stands before `text`. `stop`: the stop string that has ended it.
    """

    text: str
    position: int
    ids: list[int]
    finish: str
    logprobs: list[Logprob]
    reasoning: str = ""
    stop: str = ""


class TextOutput:
    """One sequence's output so far, behind the prompt `before`.

    `include_stop`: the stop string or token that ends it belongs to its text. Stop strings are looked for behind the
    reasoning; filters judge it too, apart from the text.
    """

    def __init__(  # noqa: PLR0913 - what a request says of its text
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
        tell_reasoning: bool = True,
    ) -> None:
        self._detokenizer = Detokenizer(decode, before)
        self._stops = StopMatcher(stops, included=include_stop)
        self._include_stop = include_stop
        self._stoppable = bool(stops)
        self._min_tokens = min_tokens
        self._filters = filters or Filters()
        self._splitter = ReasoningSplitter(reasoning)
        self._reasoning_filters = reasoning_filters or Filters()
        self._reasoning = ""
        self._tell_reasoning = tell_reasoning
        self.reasons = reasoning is not None
        self.reasoning_tokens = 0
        self._ids: list[int] = []
        self._logprobs: list[Logprob] = []
        self.prompt_logprobs: list[PromptLogprob] = []
        self.tokens = 0
        self.cached = 0
        self.timing: Timing | None = None

    def feed(self, frames: Sequence[Tokens]) -> Piece | None:
        """The piece that these frames make, None without text. Raises RequestError when the engine gave up."""
        text, finish = "", ""
        for frame in frames:
            self.prompt_logprobs += frame.prompt_logprobs
            text += self._text(frame)
            finish = self._finish(frame)
            if finish:
                text += self._rest()
                finish = self.stopped or finish
                break
        return self._piece(text, finish) if text or finish or self._reasoning else None

    def replay(self, ids: Sequence[int], finish: str = "") -> Piece:
        """Take in what an earlier life of this sequence has given out: one piece. `finish` as with the last frame."""
        place = self.tokens
        piece = self.feed([Tokens("", place, list(ids), finish)])
        self._ids, self._logprobs = [], []
        text, reasoning = (piece.text, piece.reasoning) if piece else ("", "")
        return Piece(text, place, list(ids), finish or self.stopped, [], reasoning, self._stops.matched)

    @property
    def stopped(self) -> str:
        """The finish reason if a filter or a stop string has ended the text, else ""."""
        filtered = self._filters.ended or self._reasoning_filters.ended
        return "content_filter" if filtered else "stop" if self._stops.matched else ""

    def _text(self, frame: Tokens) -> str:
        """Certain text of a frame; token by token, so that it does not depend on how tokens come in frames."""
        hidden = frame.finish == "stop" and not self._include_stop
        shown = len(frame.ids) - hidden  # the token that stops is counted, but it is no text
        text = ""
        for index, token in enumerate(frame.ids):
            self.tokens += 1
            self._ids.append(token)
            if index < shown:
                self._logprobs += frame.logprobs[index : index + 1]
                text += self._filters.feed(self._certain(token))
            if self.stopped:
                break
        return text

    def _certain(self, token: int) -> str:
        new = self._detokenizer.feed([token])
        if not self._splitter.outside:
            new = self._split(*self._splitter.feed(new))
        return self._stops.feed(new) if self._stoppable and self.tokens > self._min_tokens else new

    def _split(self, reasoning: str, content: str) -> str:
        """The content; a token counts as reasoning if the text is within it behind the token, or the token ends it."""
        ended = self._splitter.outside
        if self._splitter.inside or reasoning or (ended and self.reasoning_tokens):
            self.reasoning_tokens += 1
        self._think(reasoning, last=ended)
        return content

    def _think(self, text: str, *, last: bool) -> None:
        told = self._reasoning_filters.feed(text, last=last)
        self._reasoning += told if self._tell_reasoning else ""

    def _rest(self) -> str:
        """What was held back, once no token follows."""
        rest = self._detokenizer.flush()
        if not self._splitter.outside:
            (thought, said), (late, words) = self._splitter.feed(rest), self._splitter.flush()
            self._think(thought + late, last=True)
            rest = said + words
        return self._filters.feed(self._stops.feed(rest) + self._stops.flush(), last=True)

    def _finish(self, frame: Tokens) -> str:
        self.cached = frame.cached or self.cached
        self.timing = frame.timing or self.timing
        if self.stopped:
            return self.stopped
        if error := gave_up(frame):
            raise error
        return frame.finish

    def _piece(self, text: str, finish: str) -> Piece:
        piece = Piece(
            text, self.tokens - len(self._ids), self._ids, finish, self._logprobs, self._reasoning, self._stops.matched
        )
        self._ids, self._logprobs, self._reasoning = [], [], ""
        return piece


def gave_up(frame: Tokens) -> RequestError | None:
    """What a client is told if the engine ended a sequence without an answer."""
    match frame.finish:
        case "error":
            return RequestError(Code.ENGINE_FAILED, frame.error or "The engine failed on this request.")
        case "abort":
            return RequestError(Code.HELD_TIMEOUT, frame.error or "The deadline passed before the answer was complete.")
        case "refused":
            return RequestError(Code.INVALID_REQUEST, frame.error)
        case "crowded":
            return RequestError(Code.QUEUE_FULL, frame.error, retry_after=RETRY_AFTER_S)
    return None
