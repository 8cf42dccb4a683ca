"""Writes a chat's answer as an Anthropic message: its content blocks, or the events of a stream.

One state machine makes both. When this worker resumes an answer that another worker lost, it runs the earlier output
through the same machine and discards the result. Thinking carries a signature (its digest), because many clients do
not send thinking back without one; paceline does not check it.
"""

import json
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UnsetType

from paceline_workers.server.openai.chat_responses import ChatToolCall
from paceline_workers.server.openai.response_writer import ObjectKind, ResponseShape, ShapeWrapper, Usage, written_event
from paceline_workers.server.text.output import Piece

MESSAGE = ObjectKind("msg_", "message", "message")
_REASONS = {"length": "max_tokens", "tool_calls": "tool_use", "content_filter": "refusal"}
Event = dict[str, Any]


class MessageAnswer(ShapeWrapper):
    """Wraps a chat's shape; the constructor takes the number of prompt tokens."""

    kind = MESSAGE

    def __init__(self, shape: ResponseShape, identity: str, created: int, model: str, prompt: int) -> None:
        super().__init__(shape)
        self.id = identity
        self.created = created
        self.model = model
        self._prompt = prompt
        self._blocks: list[Event] = []
        self._open = False
        self._texts: list[str] = []
        """The texts of the open block, as a list: appending each piece to one string would copy it every time."""
        self._finish = ""
        self._stop = ""

    def opening(self) -> list[Any]:
        """The message before it has any content."""
        self.shape.opening()
        return [{"type": "message_start", "message": self._message({"input_tokens": self._prompt, "output_tokens": 0})}]

    def chunks(self, piece: Piece) -> list[Any]:
        """The events of a piece."""
        self._stop, events = piece.stop or self._stop, list[Event]()
        for chunk in self.shape.chunks(piece):
            delta = chunk.delta
            if isinstance(delta.reasoning, str):
                events += self._added("thinking", "thinking_delta", delta.reasoning)
            if isinstance(delta.content, str) and delta.content:
                events += self._added("text", "text_delta", delta.content)
            for call in delta.tool_calls or ():
                events += self._called(call)
            if chunk.finish_reason:
                self._finish = chunk.finish_reason
                events += self._close()
        return events

    def skip(self, piece: Piece) -> None:
        """Process a piece that the client already has."""
        self.chunks(piece)

    def whole(self, pieces: Sequence[Piece]) -> Any:
        """Returns nothing: `body` writes the whole message."""
        for piece in pieces:
            self.chunks(piece)

    def events(self, choices: list[Any], usage: Usage | UnsetType | None, *, opening: bool = False) -> list[bytes]:  # noqa: ARG002 - sent at the end
        return [written_event(event) for event in choices]

    def ending(self, usage: Usage, *, asked: bool) -> bytes:  # noqa: ARG002 - a message always has it
        """The stop reason and the usage."""
        document = self._message(_usage(usage))
        delta = {"stop_reason": document["stop_reason"], "stop_sequence": document["stop_sequence"]}
        last = {"type": "message_delta", "delta": delta, "usage": document["usage"]}
        return written_event(last) + written_event({"type": "message_stop"})

    def body(self, choices: list[Any], usage: Usage) -> bytes:  # noqa: ARG002 - they have become blocks
        return msgspec.json.encode(self._message(_usage(usage)))

    def _message(self, usage: Event) -> Event:
        reason = None
        if self._finish:
            reason = "stop_sequence" if self._stop else _REASONS.get(self._finish, "end_turn")
        return {
            "id": self.id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": list(self._blocks),
            "stop_reason": reason,
            "stop_sequence": self._stop or None,
            "usage": usage,
        }

    def _added(self, kind: str, delta: str, text: str) -> list[Event]:
        events = []
        if not self._open or self._blocks[-1]["type"] != kind:
            events = self._close()
            block: Event = {"type": kind, kind: ""} | ({"signature": ""} if kind == "thinking" else {})
            self._blocks.append(block)
            self._open, self._texts = True, []
            events.append(self._of("content_block_start", content_block=dict(block)))
        self._texts.append(text)
        return [*events, self._of("content_block_delta", delta={"type": delta, kind: text})]

    def _called(self, call: ChatToolCall) -> list[Event]:
        """The events of one tool call, which always arrives whole."""
        events, arguments = self._close(), call.function.arguments
        own = {"type": "tool_use", "id": call.id, "name": call.function.name}
        self._blocks.append({**own, "input": json.loads(arguments)})
        self._open = True
        events.append(self._of("content_block_start", content_block={**own, "input": {}}))
        delta = {"type": "input_json_delta", "partial_json": arguments}
        return [*events, self._of("content_block_delta", delta=delta), *self._close()]

    def _close(self) -> list[Event]:
        was, self._open = self._open, False
        if not was:
            return []
        events, block = [], self._blocks[-1]
        if block["type"] != "tool_use":
            block[block["type"]] = "".join(self._texts)
        if block["type"] == "thinking":
            block["signature"] = blake2b(block["thinking"].encode(), digest_size=16).hexdigest()
            delta = {"type": "signature_delta", "signature": block["signature"]}
            events.append(self._of("content_block_delta", delta=delta))
        return [*events, self._of("content_block_stop")]

    def _of(self, kind: str, **fields: Any) -> Event:
        return {"type": kind, "index": len(self._blocks) - 1, **fields}


def _usage(usage: Usage) -> Event:
    document: Event = {"input_tokens": usage.prompt_tokens, "output_tokens": usage.completion_tokens}
    details = usage.completion_tokens_details
    if not isinstance(details, UnsetType):
        document["output_tokens_details"] = {"thinking_tokens": details.reasoning_tokens}
    return document
