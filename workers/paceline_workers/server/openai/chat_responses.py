"""The choices of `/v1/chat/completions`."""

import string
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from msgspec import UNSET, Struct, UnsetType, structs

from paceline_workers.server.openai.response_writer import LOWEST, ObjectKind, ResponseShape, ShapeWrapper, TokenBytes
from paceline_workers.server.openai.served_model import ToolParsing
from paceline_workers.server.text.output import Piece
from paceline_workers.server.tools.parser import Call, CallParser, Part

CHAT = ObjectKind("chatcmpl-", "chat.completion", "chat.completion.chunk")


class ChatToolFunction(Struct, frozen=True):
    """A function's name and its arguments as JSON text."""

    name: str
    arguments: str


class ChatToolCall(Struct, frozen=True):
    """One call; only streams have `index`."""

    id: str
    function: ChatToolFunction
    index: int | UnsetType = UNSET
    type: str = "function"


class Delta(Struct, frozen=True):
    """What a chunk adds to the message; reasoning has both the name that most clients know and vLLM's newer one."""

    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET


class TopLogprob(Struct, frozen=True):
    """A candidate token at a position."""

    token: str
    logprob: float
    bytes: list[int]


class Chosen(Struct, frozen=True):
    """The chosen token and the likeliest candidates."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct, frozen=True):
    """The log-probabilities of a piece, one entry a token."""

    content: list[Chosen]
    refusal: None = None


class ChatChunk(Struct, frozen=True):
    """A choice of a streamed answer."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: str | None = None
    token_ids: list[int] | UnsetType = UNSET


class AssistantMessage(Struct, frozen=True):
    """The whole message."""

    role: str
    content: str | None
    refusal: None = None
    tool_calls: list[ChatToolCall] | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET


class ChatChoice(Struct, frozen=True):
    """A choice of an answer that is not streamed."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: str
    token_ids: list[int] | UnsetType = UNSET


@dataclass
class ChatShape:
    """Writes the deltas of an assistant's message. `token_bytes` is None unless the request asks for logprobs."""

    index: int
    token_bytes: TokenBytes | None

    def opening(self) -> list[Any]:
        """The role, before any content."""
        return [ChatChunk(self.index, Delta(role="assistant", content=""))]

    def chunks(self, piece: Piece) -> list[Any]:
        """Chunks for the reasoning and the content; the finish reason comes in an empty chunk."""
        chunks = []
        if piece.reasoning:
            thought = Delta(reasoning_content=piece.reasoning, reasoning=piece.reasoning)
            chunks.append(ChatChunk(self.index, thought, self._logprobs([piece])))
        if piece.text:
            logprobs = None if piece.reasoning else self._logprobs([piece])
            chunks.append(ChatChunk(self.index, Delta(content=piece.text), logprobs))
        if piece.finish:
            chunks.append(ChatChunk(self.index, Delta(), None, piece.finish))
        return chunks

    def skip(self, piece: Piece) -> None:
        """Does nothing: a message's pieces are independent."""

    def whole(self, pieces: Sequence[Piece]) -> ChatChoice:
        """The whole message."""
        return self._whole(pieces, "".join(piece.text for piece in pieces), [], pieces[-1].finish)

    def _whole(self, pieces: Sequence[Piece], content: str, calls: list[ChatToolCall], finish: str) -> ChatChoice:
        """Content is null if it is empty and there is reasoning or a call."""
        thought = "".join(piece.reasoning for piece in pieces) or UNSET
        shown = content or (None if calls or thought else "")
        message = AssistantMessage("assistant", shown, None, calls or UNSET, thought, thought)
        return ChatChoice(self.index, message, self._logprobs(pieces), finish)

    def _logprobs(self, pieces: Sequence[Piece]) -> ChatLogprobs | None:
        """The log-probabilities of all tokens of `pieces`."""
        token_bytes, entries = self.token_bytes, []
        if token_bytes is None:
            return None

        def named(token: int, logprob: float) -> tuple[str, float, list[int]]:
            raw = token_bytes(token)
            return raw.decode(errors="replace"), max(logprob, LOWEST), list(raw)

        for piece in pieces:
            for token, (logprob, top) in zip(piece.ids, piece.logprobs, strict=False):
                entries.append(
                    Chosen(*named(token, logprob), [TopLogprob(*named(other, value)) for other, value in top])
                )
        return ChatLogprobs(entries)


_LETTERS = string.ascii_letters + string.digits


class ToolShape(ChatShape):
    """Writes deltas of content and of calls: the call parser reads the text, and each call is written whole.

    The log-probabilities of tokens that the parser holds back come with the next chunk, whatever it carries. Calls
    beyond the limit for one answer are dropped, as in vLLM. The ids of calls derive from the answer's `identity`, so
    that another worker that resumes the answer produces the same ids.
    """

    def __init__(self, index: int, token_bytes: TokenBytes | None, tools: ToolParsing, identity: str) -> None:
        super().__init__(index, token_bytes)
        self._identity = f"{identity}/{index}"
        self._form = tools.form
        self._parser = CallParser(tools.form, tools.names)
        self._left = tools.most
        self._calls = 0
        self._unsent: list[Piece] = []

    def chunks(self, piece: Piece) -> list[Any]:
        """A chunk for the reasoning, for each content and for each call; then the finish reason."""
        self._unsent.append(piece)
        deltas = []
        if piece.reasoning:
            deltas.append(Delta(reasoning_content=piece.reasoning, reasoning=piece.reasoning))
        for part in self._parts(piece.text, piece.finish):
            if isinstance(part, str):
                deltas.append(Delta(content=part))
            else:
                deltas.append(Delta(tool_calls=[self._call(part, self._calls, self._calls)]))
                self._calls += 1
        chunks: list[Any] = [ChatChunk(self.index, delta, self._held_logprobs()) for delta in deltas]
        if piece.finish:
            chunks.append(ChatChunk(self.index, Delta(), self._held_logprobs(), self._reason(piece.finish)))
        return chunks

    def skip(self, piece: Piece) -> None:
        """Count the calls that the client has; a call that was open stays open."""
        self._calls += sum(isinstance(part, Call) for part in self._parts(piece.text, piece.finish))

    def whole(self, pieces: Sequence[Piece]) -> ChatChoice:
        """The whole message."""
        parts = self._parts("".join(piece.text for piece in pieces), pieces[-1].finish)
        found = [part for part in parts if isinstance(part, Call)]
        calls = [self._call(part, place, UNSET) for place, part in enumerate(found)]
        self._calls = len(calls)
        content = "".join(part for part in parts if isinstance(part, str))
        return self._whole(pieces, content, calls, self._reason(pieces[-1].finish))

    def _parts(self, text: str, finish: str) -> list[Part]:
        parts: list[Part] = []
        for part in self._parser.feed(text) + (self._parser.flush() if finish else []):
            self._left -= isinstance(part, Call)
            if isinstance(part, str) or self._left >= 0:
                parts.append(part)
        return parts

    def _call(self, call: Call, place: int, index: int | UnsetType) -> ChatToolCall:
        digest = blake2b(f"{self._identity}/{place}".encode(), digest_size=24).digest()
        identity = call.id or self._form.call_id("".join(_LETTERS[byte % len(_LETTERS)] for byte in digest))
        return ChatToolCall(identity, ChatToolFunction(call.name, call.arguments), index)

    def _reason(self, finish: str) -> str:
        return "tool_calls" if self._calls and finish == "stop" else finish

    def _held_logprobs(self) -> ChatLogprobs | None:
        unsent, self._unsent = self._unsent, []
        return self._logprobs(unsent) if unsent else None


class Echo(ShapeWrapper):
    """Wraps a chat's shape and repeats the last message's text, which the answer continues."""

    def __init__(self, shape: ResponseShape, text: str) -> None:
        super().__init__(shape)
        self._text = text

    def opening(self) -> list[Any]:
        """The role and the text of the last message."""
        return [
            structs.replace(choice, delta=structs.replace(choice.delta, content=self._text))
            for choice in self.shape.opening()
        ]

    def whole(self, pieces: Sequence[Piece]) -> Any:
        """The text of the last message and the answer as one content."""
        choice = self.shape.whole(pieces)
        message = structs.replace(choice.message, content=self._text + (choice.message.content or ""))
        return structs.replace(choice, message=message)
