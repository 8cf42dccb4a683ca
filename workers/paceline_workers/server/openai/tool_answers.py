"""Choices of a chat that may call tools: text goes through the call parser, calls come out whole.

Log-probabilities of tokens that are held back come with the next chunk, whatever it brings. Calls beyond the most that
one answer may hold are dropped, as in vLLM.
"""

import string
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from msgspec import UNSET

from paceline_workers.server.openai.answers import TokenBytes
from paceline_workers.server.openai.chat_answers import (
    AssistantMessage,
    ChatChoice,
    ChatChunk,
    ChatLogprobs,
    ChatToolCall,
    ChatToolFunction,
    Delta,
    chat_logprobs,
)
from paceline_workers.server.openai.served import ToolParsing
from paceline_workers.server.output import Piece
from paceline_workers.server.tools.calls import Call
from paceline_workers.server.tools.parser import CallParser, Part

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
        self._untold: list[Piece] = []

    def opening(self) -> list[Any]:
        """The role, before any content."""
        return [ChatChunk(self._index, Delta(role="assistant", content=""))]

    def chunks(self, piece: Piece) -> list[Any]:
        """A chunk for the reasoning, each content and each call; and the finish reason."""
        self._untold.append(piece)
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
        calls = [self._call(part, place, told=False) for place, part in enumerate(found)]
        content = "".join(part for part in parts if isinstance(part, str))
        message = AssistantMessage.of(pieces, content, calls)
        self._untold, self._calls = list(pieces), len(calls)
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

    def _call(self, call: Call, place: int, *, told: bool = True) -> ChatToolCall:
        digest = blake2b(f"{self._identity}/{place}".encode(), digest_size=24).digest()
        identity = call.id or self._form.call_id("".join(_LETTERS[byte % len(_LETTERS)] for byte in digest))
        return ChatToolCall(identity, ChatToolFunction(call.name, call.arguments), place if told else UNSET)

    def _reason(self, finish: str) -> str:
        return "tool_calls" if self._calls and finish == "stop" else finish

    def _logprobs(self) -> ChatLogprobs | None:
        told, self._untold = self._untold, []
        return None if self._token_bytes is None or not told else chat_logprobs(told, self._token_bytes)
