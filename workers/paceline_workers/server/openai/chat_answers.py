"""Choices of `/v1/chat/completions`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec import UNSET, Struct, UnsetType

from paceline_workers.server.openai.answers import LOWEST, ObjectKind
from paceline_workers.server.output import Piece

CHAT = ObjectKind("chatcmpl-", "chat.completion", "chat.completion.chunk")


class ChatToolFunction(Struct, frozen=True):
    """A function's name and its arguments as JSON text."""

    name: str
    arguments: str


class ChatToolCall(Struct, frozen=True):
    """One call; `index` is told in streams alone."""

    id: str
    function: ChatToolFunction
    index: int | UnsetType = UNSET
    type: str = "function"


class Delta(Struct, frozen=True):
    """What a chunk adds to the message."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET

    @classmethod
    def thought(cls, text: str) -> "Delta":
        """Reasoning, by the name that most clients know and by vLLM's newer one."""
        return cls(reasoning_content=text, reasoning=text)


class TopLogprob(Struct, frozen=True):
    """A token that was possible at a position."""

    token: str
    logprob: float
    bytes: list[int]


class Chosen(Struct, frozen=True):
    """The token that was taken, and the likeliest ones."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    """Per token of the piece."""

    content: list[Chosen]
    refusal: None = None


class ChatChunk(Struct, frozen=True):
    """A streamed choice."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    token_ids: list[int] | UnsetType = UNSET


class AssistantMessage(Struct, frozen=True):
    """The whole answer."""

    role: str
    content: str | None
    refusal: None = None
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET

    @classmethod
    def of(cls, pieces: Sequence[Piece], content: str, calls: list[ChatToolCall]) -> "AssistantMessage":
        """Its content is null if there is none, but reasoning or calls are."""
        thought = "".join(piece.reasoning for piece in pieces) or UNSET
        told = content or (None if calls or thought else "")
        return cls("assistant", told, None, calls or UNSET, thought, thought)


class ChatChoice(Struct, frozen=True):
    """The choice of an answer that is not streamed."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    token_ids: list[int] | UnsetType = UNSET


class ChatShape:
    """Deltas of an assistant's message. `token_bytes` is None when no logprobs were asked for."""

    def __init__(self, index: int, token_bytes: Callable[[int], bytes] | None) -> None:
        self._index = index
        self._token_bytes = token_bytes

    def opening(self) -> list[Any]:
        """The role, before any content."""
        return [ChatChunk(self._index, Delta(role="assistant", content=""))]

    def chunks(self, piece: Piece) -> list[Any]:
        """A piece of reasoning, one of content; and the finish reason, with nothing to add."""
        chunks = []
        if piece.reasoning:
            chunks.append(ChatChunk(self._index, Delta.thought(piece.reasoning), self._logprobs([piece])))
        if piece.text:
            logprobs = None if piece.reasoning else self._logprobs([piece])
            chunks.append(ChatChunk(self._index, Delta(content=piece.text), logprobs))
        if piece.finish:
            chunks.append(ChatChunk(self._index, Delta(), None, piece.finish))
        return chunks

    def skip(self, piece: Piece) -> None:
        """A message's pieces do not depend on each other."""

    def whole(self, pieces: Sequence[Piece]) -> ChatChoice:
        """The message in one."""
        message = AssistantMessage.of(pieces, "".join(piece.text for piece in pieces), [])
        return ChatChoice(self._index, message, self._logprobs(pieces), pieces[-1].finish)

    def _logprobs(self, pieces: Sequence[Piece]) -> ChatLogprobs | None:
        if self._token_bytes is None:
            return None
        return chat_logprobs(pieces, self._token_bytes)


def chat_logprobs(pieces: Sequence[Piece], token_bytes: Callable[[int], bytes]) -> ChatLogprobs:
    """Those of all tokens of `pieces`."""
    return ChatLogprobs([entry for piece in pieces for entry in _entries(piece, token_bytes)])


def _entries(piece: Piece, token_bytes: Callable[[int], bytes]) -> Iterator[Chosen]:
    for token, (logprob, top) in zip(piece.ids, piece.logprobs, strict=False):
        candidates = [TopLogprob(*_named(other, value, token_bytes)) for other, value in top]
        yield Chosen(*_named(token, logprob, token_bytes), candidates)


def _named(token: int, logprob: float, token_bytes: Callable[[int], bytes]) -> tuple[str, float, list[int]]:
    raw = token_bytes(token)
    return raw.decode(errors="replace"), max(logprob, LOWEST), list(raw)
