"""Choices of `/v1/completions`."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from paceline_workers.server.openai.prompt_logprobs import PromptScores
from paceline_workers.server.openai.response_writer import LOWEST, ObjectKind, PromptLogprobs
from paceline_workers.server.openai.token_ids import TokenTexts
from paceline_workers.server.text.output import Logprob, Piece

TEXT = ObjectKind("cmpl-", "text_completion", "text_completion")


class TextLogprobs(Struct, frozen=True):
    """Parallel lists, one entry a token; offsets count characters from the begin of the text, an echo included.

    The first token of an echo has null for its log-probabilities.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class TextChoice(Struct, frozen=True):
    """A choice, streamed or not: the two differ in `finish_reason` alone."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class CompletionShape:
    """Plain text behind `echo`, the prompt's own. `texts` is None when no logprobs were asked for.

    `prompt`: whose tokens stand in the logprobs before the answer's.
    """

    def __init__(
        self, index: int, texts: TokenTexts | None, echo: str = "", prompt: PromptScores | None = None
    ) -> None:
        self._index = index
        self._texts = texts
        self._echo = echo
        self._prompt = prompt

    def opening(self) -> list[Any]:
        """The prompt, if it is wanted again."""
        return [TextChoice(self._index, self._echo, self._logprobs([], self._prompt))] if self._echo else []

    def chunks(self, piece: Piece) -> list[Any]:
        """A piece of text; and the finish reason."""
        chunks = []
        if piece.text:
            chunks.append(TextChoice(self._index, piece.text, self._logprobs([piece])))
        if piece.finish:
            chunks.append(TextChoice(self._index, "", None, piece.finish))
        return chunks

    def skip(self, piece: Piece) -> None:
        """Offsets go on behind these tokens, and those of the prompt before them."""
        before = self._prompt.ids if self._prompt else ()
        self._prompt = None
        if self._texts is not None:
            for token in (*before, *piece.ids):
                self._texts.add(token)

    def whole(self, pieces: Sequence[Piece]) -> TextChoice:
        """The text in one."""
        text = self._echo + "".join(piece.text for piece in pieces)
        return TextChoice(self._index, text, self._logprobs(pieces, self._prompt), pieces[-1].finish)

    def _logprobs(self, pieces: Sequence[Piece], prompt: PromptScores | None = None) -> TextLogprobs | None:
        if self._texts is None:
            return None
        out = TextLogprobs([], [], [], [])
        for token, score in prompt.entries() if prompt else ():
            _add(out, self._texts, token, score)
        for piece in pieces:
            for token, (logprob, top) in zip(piece.ids, piece.logprobs, strict=False):
                _add(out, self._texts, token, (logprob, top))
        return out


def _add(out: TextLogprobs, texts: TokenTexts, token: int, score: Logprob | None) -> None:
    """What is told of a token: the likeliest candidates and itself, so one more than were asked for where it is none of
    them, as in OpenAI's API and vLLM. Of candidates that have one name, the token itself or else the likeliest counts.
    """
    name = texts.name(token)
    out.text_offset.append(texts.offset)
    out.tokens.append(name)
    if score is None:
        out.token_logprobs.append(None)
        out.top_logprobs.append(None)
    else:
        logprob, top = score
        out.token_logprobs.append(max(logprob, LOWEST))
        named: dict[str, float] = {}
        for other, value in top:
            named.setdefault(texts.name(other), max(value, LOWEST))
        named[name] = max(logprob, LOWEST)
        out.top_logprobs.append(named)
    texts.add(token)
