"""Choices of `/v1/completions`."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from paceline_workers.server.openai.answers import Kind
from paceline_workers.server.openai.chat_answers import LOWEST
from paceline_workers.server.output import Piece

TEXT = Kind("cmpl", "text_completion", "text_completion")


class TextLogprobs(Struct, frozen=True):
    """Parallel lists, one entry a token; offsets count characters from the begin of the answer."""

    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


class TextChoice(Struct, frozen=True):
    """A choice, streamed or not: the two differ in `finish_reason` alone."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: str | None = None
    token_ids: list[int] | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class CompletionShape:
    """Plain text behind `echo`, the prompt's own. `token_bytes` is None when no logprobs were asked for."""

    def __init__(self, index: int, token_bytes: Callable[[int], bytes] | None, echo: str = "") -> None:
        self._index = index
        self._token_bytes = token_bytes
        self._echo = echo
        self._offset = 0

    def opening(self) -> list[Any]:
        """The prompt, if it is wanted again."""
        return [TextChoice(self._index, self._echo)] if self._echo else []

    def chunks(self, piece: Piece) -> list[Any]:
        """A piece of text; and the finish reason."""
        chunks = []
        if piece.text:
            chunks.append(TextChoice(self._index, piece.text, self._logprobs([piece])))
        if piece.finish:
            chunks.append(TextChoice(self._index, "", None, piece.finish))
        return chunks

    def skip(self, text: str, ids: Sequence[int], finish: str) -> None:  # noqa: ARG002 - offsets count the tokens' own texts
        """Offsets go on behind these tokens."""
        self._offset += sum(len(self._text(token)) for token in ids)

    def whole(self, pieces: Sequence[Piece]) -> TextChoice:
        """The text in one."""
        text = self._echo + "".join(piece.text for piece in pieces)
        return TextChoice(self._index, text, self._logprobs(pieces), pieces[-1].finish)

    def _logprobs(self, pieces: Sequence[Piece]) -> TextLogprobs | None:
        if self._token_bytes is None:
            return None
        out = TextLogprobs([], [], [], [])
        for piece in pieces:
            for token, (logprob, top) in zip(piece.ids, piece.logprobs, strict=False):
                self._add(out, token, logprob, top)
        return out

    def _add(self, out: TextLogprobs, token: int, logprob: float, top: list[tuple[int, float]]) -> None:
        text = self._text(token)
        out.text_offset.append(self._offset)
        out.token_logprobs.append(max(logprob, LOWEST))
        out.tokens.append(text)
        out.top_logprobs.append({self._text(other): max(value, LOWEST) for other, value in top})
        self._offset += len(text)

    def _text(self, token: int) -> str:
        return self._token_bytes(token).decode(errors="replace") if self._token_bytes else ""
