"""Choices of `/v1/chat/completions`.

Choices of a chat that may call tools: text goes through the call parser, calls come out whole.

Log-probabilities of tokens that are held back come with the next chunk, whatever it brings. Calls beyond the most that
one answer may hold are dropped, as in vLLM.

`echo` of a chat: the answer begins with the message that it continues.
"""

import string
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from paceline_workers.server.openai.response_writer import LOWEST, ObjectKind, ResponseShape, TokenBytes
from paceline_workers.server.openai.served_model import ToolParsing
from paceline_workers.server.text.output import Piece
from paceline_workers.server.tools.parser import Call, CallParser, Part

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
        shown = content or (None if calls or thought else "")
        return cls("assistant", shown, None, calls or UNSET, thought, thought)


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


_LETTERS = string.ascii_letters + string.digits


class ToolShape:
    """Deltas of content and of calls. `token_bytes` is None when no logprobs were asked for.

    The ids of calls follow from the answer's `identity`, so that another worker, which goes on with it, tells the same.
    """

    def __init__(self, index: int, token_bytes: TokenBytes | None, tools: ToolParsing, identity: str) -> None:
        self._identity = f"{identity}/{index}"
        self._index = index
        self._token_bytes = token_bytes
        self._form = tools.form
        self._parser = CallParser(tools.form, tools.names)
        self._left = tools.most
        self._calls = 0
        self._unsent: list[Piece] = []

    def opening(self) -> list[Any]:
        """The role, before any content."""
        return [ChatChunk(self._index, Delta(role="assistant", content=""))]

    def chunks(self, piece: Piece) -> list[Any]:
        """A chunk for the reasoning, each content and each call; and the finish reason."""
        self._unsent.append(piece)
        chunks: list[Any] = []
        if piece.reasoning:
            chunks.append(ChatChunk(self._index, Delta.thought(piece.reasoning), self._logprobs()))
        chunks += [
            ChatChunk(self._index, self._delta(part), self._logprobs())
            for part in self._parts(piece.text, piece.finish)
        ]
        if piece.finish:
            chunks.append(ChatChunk(self._index, Delta(), self._logprobs() or None, self._reason(piece.finish)))
        return chunks

    def skip(self, piece: Piece) -> None:
        """Calls that were told are counted, one that was open stays open."""
        self._calls += sum(isinstance(part, Call) for part in self._parts(piece.text, piece.finish))

    def whole(self, pieces: Sequence[Piece]) -> ChatChoice:
        """The message in one."""
        parts = self._parts("".join(piece.text for piece in pieces), pieces[-1].finish)
        found = [part for part in parts if isinstance(part, Call)]
        calls = [self._call(part, place, indexed=False) for place, part in enumerate(found)]
        content = "".join(part for part in parts if isinstance(part, str))
        message = AssistantMessage.of(pieces, content, calls)
        self._unsent, self._calls = list(pieces), len(calls)
        return ChatChoice(self._index, message, self._logprobs(), self._reason(pieces[-1].finish))

    def _parts(self, text: str, finish: str) -> list[Part]:
        parts = self._parser.feed(text) + (self._parser.flush() if finish else [])
        return [part for part in parts if isinstance(part, str) or self._admitted()]

    def _admitted(self) -> bool:
        self._left -= 1
        return self._left >= 0

    def _delta(self, part: Part) -> Delta:
        if isinstance(part, str):
            return Delta(content=part)
        self._calls += 1
        return Delta(tool_calls=[self._call(part, self._calls - 1)])

    def _call(self, call: Call, place: int, *, indexed: bool = True) -> ChatToolCall:
        digest = blake2b(f"{self._identity}/{place}".encode(), digest_size=24).digest()
        identity = call.id or self._form.call_id("".join(_LETTERS[byte % len(_LETTERS)] for byte in digest))
        return ChatToolCall(identity, ChatToolFunction(call.name, call.arguments), place if indexed else UNSET)

    def _reason(self, finish: str) -> str:
        return "tool_calls" if self._calls and finish == "stop" else finish

    def _logprobs(self) -> ChatLogprobs | None:
        unsent, self._unsent = self._unsent, []
        return None if self._token_bytes is None or not unsent else chat_logprobs(unsent, self._token_bytes)


class Echo:
    """A chat's shape behind the text of the last message."""

    def __init__(self, shape: ResponseShape, text: str) -> None:
        self._shape = shape
        self._text = text

    def opening(self) -> list[Any]:
        """The role, and the text."""
        return [
            structs.replace(choice, delta=structs.replace(choice.delta, content=self._text))
            for choice in self._shape.opening()
        ]

    def chunks(self, piece: Piece) -> list[Any]:
        """As they are."""
        return self._shape.chunks(piece)

    def skip(self, piece: Piece) -> None:
        """The text has been told too."""
        self._shape.skip(piece)

    def whole(self, pieces: Sequence[Piece]) -> Any:
        """The text and the answer as one content."""
        choice = self._shape.whole(pieces)
        message = structs.replace(choice.message, content=self._text + (choice.message.content or ""))
        return structs.replace(choice, message=message)
