"""A strict, incremental checker of OpenAI chat streams: bytes in, split anywhere, one ending out.

Two machines: `EventReader` splits bytes into SSE events, `ChatStream` checks their order: role, text, finish, usage and
`[DONE]`. Invariant: the ending depends only on the bytes, not on how they were split. HTTP 200 proves nothing here: an
error event is `failed`, a stream without `[DONE]` is `cut`. Known hole: one choice only, which the load generator uses.
"""

import json
from collections.abc import Iterator
from typing import Any

from paceline_cli.bench.openloop import Ending, TokenCounts

EVENT_LIMIT = 1 << 20
FAULTS_LIMIT = 8
_FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter"})


class Malformed(Exception):
    """The bytes are no event stream."""


class EventReader:
    """Splits bytes into events and yields the data of each; `comments` counts the lines that a client ignores."""

    def __init__(self) -> None:
        self.comments = 0
        self._rest = b""
        self._data: list[str] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield the data of every event that these bytes complete; raises Malformed, then the reader is unusable."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in (each.removesuffix(b"\r") for each in lines):
            self._bound(len(line))
            if not line:
                event, self._data, self._size = "\n".join(self._data), [], 0
                if event:
                    yield event
            elif line.startswith(b":"):
                self.comments += 1
            else:
                self._data.append(_field(line))
                self._size += len(line)
        self._bound(len(self._rest))

    def _bound(self, more: int) -> None:
        if self._size + more > EVENT_LIMIT:
            raise Malformed(f"an event is longer than {EVENT_LIMIT} bytes")


class ChatStream:
    """A chat answer as it arrives. `faults` are sentences, `usage` and `finish` are from the server."""

    def __init__(self, *, expect_usage: bool = True) -> None:
        self.usage: TokenCounts | None = None
        self.finish: str | None = None
        self.error: str | None = None
        self.faults: list[str] = []
        self._expect_usage = expect_usage
        self.reader = EventReader()
        self._opened = False
        self._done = False
        self._broken = False
        self._identity: tuple[Any, Any] | None = None

    def feed(self, data: bytes) -> int:
        """Process bytes; returns how many events with text they completed. After malformed bytes nothing is read."""
        count = 0
        try:
            for event in self.reader.feed(b"" if self._broken else data):
                count += self._event(event)
        except Malformed as error:
            self._broken = True
            self._fault(str(error))
        return count

    def close(self) -> Ending:
        """Judge the ended stream. A later `[DONE]` excuses neither an error nor a fault."""
        if self.error is not None:
            return Ending.FAILED
        if self.faults:
            return Ending.VIOLATION
        return Ending.OK if self._done else Ending.CUT

    def _event(self, text: str) -> bool:
        if self._done:
            self._fault("an event after [DONE]")
            return False
        if text != "[DONE]":
            return self._chunk(text)
        self._done = True
        if self.error is None and self.finish is None:
            self._fault("[DONE] without finish_reason")
        if self.error is None and self._expect_usage and self.usage is None:
            self._fault("[DONE] without the usage chunk that was asked for")
        return False

    def _chunk(self, text: str) -> bool:
        chunk = _json_object(text)
        if "error" in chunk:
            error = chunk["error"]
            if isinstance(error, dict):
                error = f"{error.get('code') or error.get('type') or 'error'}: {error.get('message', '')}"
            self.error = str(error)[:200]
            return False
        identity = (chunk.get("id"), chunk.get("model"))
        if chunk.get("object") != "chat.completion.chunk" or not all(isinstance(part, str) for part in identity):
            raise Malformed("a chunk without object chat.completion.chunk, id and model")
        if self._identity not in (None, identity):
            self._fault("id or model changed within the stream")
        self._identity = identity
        choices = chunk.get("choices")
        if not isinstance(choices, list) or len(choices) > 1:
            raise Malformed("choices is not a list of at most one choice")
        if not choices:
            self._take_usage(chunk.get("usage"))
            return False
        return self._choice(choices[0])

    def _choice(self, choice: Any) -> bool:
        if not isinstance(choice, dict) or choice.get("index") != 0 or not isinstance(choice.get("delta"), dict):
            raise Malformed("a choice without index 0 and a delta")
        delta, finish = choice["delta"], choice.get("finish_reason")
        if self.finish is not None:
            self._fault("a choice after finish_reason")
        self._role(delta.get("role"))
        text = delta.get("content")
        if text is not None and not isinstance(text, str):
            raise Malformed("delta.content is not a string")
        if finish is not None:
            if finish not in _FINISHES:
                self._fault(f"finish_reason {finish!r} is not one of {sorted(_FINISHES)}")
            self.finish = self.finish or str(finish)
        return bool(text)

    def _role(self, role: Any) -> None:
        if not self._opened and role != "assistant":
            self._fault("the first delta does not say role assistant")
        if self._opened and role not in (None, "assistant"):
            self._fault(f"role changed to {role!r}")
        self._opened = True

    def _take_usage(self, usage: Any) -> None:
        if not self._expect_usage or self.usage is not None:
            self._fault("a usage chunk that was not asked for, or a second one")
        if self.finish is None:
            self._fault("the usage chunk before finish_reason")
        fields = ("prompt_tokens", "completion_tokens", "total_tokens")
        counts = [count for name in fields if type(count := usage.get(name)) is int] if isinstance(usage, dict) else []
        if len(counts) != 3 or min(counts) < 0:
            raise Malformed("a usage chunk without whole prompt_tokens, completion_tokens and total_tokens")
        if counts[0] + counts[1] != counts[2]:
            raise Malformed("total_tokens is not prompt_tokens + completion_tokens")
        self.usage = TokenCounts(counts[0], counts[1])

    def _fault(self, text: str) -> None:
        if len(self.faults) < FAULTS_LIMIT:
            self.faults.append(text)


def _field(line: bytes) -> str:
    name, colon, value = line.partition(b":")
    if name != b"data" or not colon:
        raise Malformed(f"a line that is neither data nor a comment: {line[:40]!r}")
    try:
        return value.removeprefix(b" ").decode()
    except UnicodeDecodeError:
        raise Malformed("an event that is not UTF-8") from None


def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        raise Malformed(f"an event that is not JSON: {text[:40]!r}") from None
    if not isinstance(value, dict):
        raise Malformed("an event that is not a JSON object")
    return value
