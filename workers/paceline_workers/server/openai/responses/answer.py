"""Writes a chat's answer as a response: its items, or the numbered events of a stream.

One state machine makes both, so the whole response matches the events. When this worker resumes an answer that another
worker lost, it runs the earlier output through the same machine and discards the result, so items, texts and ids match
those that the client has. The number of events sent before is unknown, so numbering continues from an upper bound and
has a gap. The earlier log-probabilities are unknown too: they were sent with the deltas, so a text that began before
the resumption has none where it is repeated whole.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UnsetType, to_builtins

from paceline_workers.server.openai.chat_responses import ChatToolCall
from paceline_workers.server.openai.response_writer import ObjectKind, ResponseShape, ShapeWrapper, Usage, written_event
from paceline_workers.server.text.output import Piece

RESPONSE = ObjectKind("resp_", "response", "response")
_REASONS = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""The reasons why a response is incomplete, by finish reason."""
_SKIPPED = 8
"""The most events that a token can cause, and that each stream can have before its first token."""
Event = dict[str, Any]


class ResponseAnswer(ShapeWrapper):
    """Wraps a chat's shape. `request_fields`: the fields of the request that the response repeats."""

    kind = RESPONSE

    def __init__(self, shape: ResponseShape, identity: str, created: int, request_fields: Mapping[str, Any]) -> None:
        super().__init__(shape)
        self.id = identity
        self.created = created
        self.model: str = request_fields["model"]
        self._request_fields = request_fields
        self._items: list[Event] = []
        self._open: Event | None = None
        self._texts: list[str] = []
        """The texts of the open item, as a list: appending each piece to one string would copy it every time."""
        self._finish = ""
        self._number = 0
        self._skipping = False
        self._scored = True

    def opening(self) -> list[Any]:
        """The response before it has any items."""
        self.shape.opening()
        states = ("response.created", "response.in_progress")
        return [self._event(state, response=self._response("in_progress")) for state in states]

    def chunks(self, piece: Piece) -> list[Any]:
        """The events of a piece; a piece with `finish` also ends the items."""
        events: list[Event] = []
        for chunk in self.shape.chunks(piece):
            delta = chunk.delta
            if isinstance(delta.reasoning, str):
                events += self._added("reasoning", delta.reasoning)
            if isinstance(delta.content, str) and delta.content:
                scores = [] if chunk.logprobs is None else to_builtins(chunk.logprobs.content)
                events += self._added("message", delta.content, scores)
            for call in delta.tool_calls or ():
                events += [*self._close(), *self._called(call)]
            if chunk.finish_reason:
                self._finish = chunk.finish_reason
                events += self._close()
        return events

    def skip(self, piece: Piece) -> None:
        """Process a piece that the client already has."""
        self._skipping = True
        self.chunks(piece)
        self._skipping = False
        self._number += _SKIPPED * (len(piece.ids) + 1)

    def whole(self, pieces: Sequence[Piece]) -> Any:
        """Returns nothing: `body` writes the whole response."""
        for piece in pieces:
            self.chunks(piece)

    def events(self, choices: list[Any], usage: Usage | UnsetType | None, *, opening: bool = False) -> list[bytes]:  # noqa: ARG002 - told at the end
        return [written_event(event) for event in choices]

    def ending(self, usage: Usage, *, asked: bool) -> bytes:  # noqa: ARG002 - a response always has it
        state = self._state()
        return written_event(self._event(f"response.{state}", response=self._response(state, usage)))

    def body(self, choices: list[Any], usage: Usage) -> bytes:  # noqa: ARG002 - they have become items
        return msgspec.json.encode(self._response(self._state(), usage))

    def _state(self) -> str:
        return "incomplete" if self._finish in _REASONS else "completed"

    def _event(self, kind: str, **fields: Any) -> Event:
        number, self._number = self._number, self._number + 1
        return {"type": kind, "sequence_number": number, **fields}

    def _response(self, state: str, usage: Usage | None = None) -> Event:
        reason = _REASONS.get(self._finish) if state == "incomplete" else None
        own = {"id": self.id, "object": "response", "created_at": self.created, "status": state}
        ended = {"incomplete_details": reason and {"reason": reason}, "output": list(self._items)}
        return {**own, **self._request_fields, **ended, "usage": usage and _usage(usage)}

    def _added(self, kind: str, text: str, scores: Sequence[Any] = ()) -> list[Event]:
        """Add text to the open item of this kind, or open one with it."""
        events = [] if self._open is not None and self._open["type"] == kind else [*self._close(), *self._begin(kind)]
        item = self._open
        assert item is not None
        part = item["content"][0]
        self._texts.append(text)
        if kind == "reasoning":
            return [*events, self._of("response.reasoning_text.delta", item, content_index=0, delta=text)]
        part["logprobs"] += scores
        self._scored = self._scored and not self._skipping
        delta_fields = {"content_index": 0, "delta": text, "logprobs": list(scores)}
        return [*events, self._of("response.output_text.delta", item, **delta_fields)]

    def _begin(self, kind: str) -> list[Event]:
        if kind == "reasoning":
            own = {"id": self._name("rs"), "type": kind, "summary": []}
            part: Event = {"type": "reasoning_text", "text": ""}
        else:
            own = {"id": self._name("msg"), "type": kind, "role": "assistant"}
            part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
        item: Event = {**own, "content": [], "status": "in_progress"}
        self._open, self._texts, self._scored = item, [], True
        events = [self._of("response.output_item.added", None, item=_copy(item))]
        events.append(self._of("response.content_part.added", item, content_index=0, part=_copy(part)))
        item["content"] = [part]
        return events

    def _close(self) -> list[Event]:
        """End the open item, if there is one."""
        item, self._open = self._open, None
        if item is None:
            return []
        (part,) = item["content"]
        part["text"] = "".join(self._texts)
        thought = item["type"] == "reasoning"
        if not (thought or self._scored):
            part["logprobs"] = []
        name = "response.reasoning_text.done" if thought else "response.output_text.done"
        scores = {} if thought else {"logprobs": part["logprobs"]}
        item["status"] = self._state()
        events = [
            self._of(name, item, content_index=0, text=part["text"], **scores),
            self._of("response.content_part.done", item, content_index=0, part=part),
            self._of("response.output_item.done", None, item=item),
        ]
        self._items.append(item)
        return events

    def _called(self, call: ChatToolCall) -> list[Event]:
        """The events of one tool call, which always arrives whole."""
        name, arguments = call.function.name, call.function.arguments
        own = {"id": self._name("fc"), "type": "function_call", "call_id": call.id, "name": name}
        begun, item = {**own, "arguments": "", "status": "in_progress"}, {**own, "arguments": arguments}
        item["status"] = "completed"
        events = [
            self._of("response.output_item.added", None, item=begun),
            self._of("response.function_call_arguments.delta", item, delta=arguments),
            self._of("response.function_call_arguments.done", item, name=name, arguments=arguments),
            self._of("response.output_item.done", None, item=item),
        ]
        self._items.append(item)
        return events

    def _of(self, kind: str, within: Event | None, **fields: Any) -> Event:
        """An event about the next item, or about a part of it."""
        names = {} if within is None else {"item_id": within["id"]}
        return self._event(kind, output_index=len(self._items), **names, **fields)

    def _name(self, prefix: str) -> str:
        return f"{prefix}_{self.id.removeprefix(RESPONSE.id_prefix)}{len(self._items):02}"


def _copy(value: Event) -> Event:
    return {name: list(inner) if isinstance(inner, list) else inner for name, inner in value.items()}


def _usage(usage: Usage) -> Event:
    details = usage.completion_tokens_details
    reasoned = 0 if isinstance(details, UnsetType) else details.reasoning_tokens
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.prompt_tokens_details.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": reasoned},
        "total_tokens": usage.total_tokens,
    }
