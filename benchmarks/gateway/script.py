"""What the toy upstreams answer, and how a client knows that it has got all of it.

The words of an answer are numbered, so that a lost, doubled or reordered event is seen. Workers of ours put comments
before their events (docs/worker-protocol.md); a peer gets the same events in the same writes without them.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from paceline_core.wire import StepTime

PROMPT_TOKENS = 600
_WORD = re.compile(rb"w\d{6}")
_COMMON = {"id": "chatcmpl-bench", "created": 1767225600, "model": "chat"}


@dataclass(frozen=True, slots=True)
class Script:
    """One kind of answer. The first token comes at once, the others `pace_s` apart.

    Without a pace all writes follow each other at once and may travel together, as when a core is saturated; `apart`
    gives each one a turn of the loop to itself, and so a segment.
    """

    tokens: int = 8
    stream: bool = True
    pace_s: float = 0.0
    apart: bool = False
    prompt_tokens: int = PROMPT_TOKENS

    @property
    def words(self) -> list[bytes]:
        """The answer's."""
        return [b"w%06d" % number for number in range(self.tokens)]

    def writes(self, *, comments: bool) -> list[bytes]:
        """What is written one after another, each a chunk: a token each, then counts, `[DONE]` and the end."""
        pieces = [self._token(number, comments=comments) for number in range(self.tokens)]
        return [*map(chunk, pieces), chunk(self._last(comments=comments)) + b"0\r\n\r\n"]

    def whole(self) -> bytes:
        """The answer where nothing is streamed."""
        text = " ".join(word.decode() for word in self.words)
        choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        answer = {**_COMMON, "object": "chat.completion", "choices": [choice], "usage": self._usage()}
        return json.dumps(answer, separators=(",", ":")).encode()

    def complaint(self, status: int, body: bytes) -> str | None:
        """What is wrong with an answer as a client got it, or None."""
        if status != 200:
            return f"{status}: {body[:200]!r}"
        if _WORD.findall(body) != self.words:
            return f"{len(_WORD.findall(body))} of {self.tokens} words, or not in order"
        if b'"completion_tokens"' not in body:
            return "without usage"
        if self.stream and (body.count(b"data: [DONE]") != 1 or not body.rstrip().endswith(b"data: [DONE]")):
            return "without one [DONE] at the end"
        return None

    def _token(self, number: int, *, comments: bool) -> bytes:
        last = number == self.tokens - 1
        opening = _event({"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None})
        word = {"index": 0, "delta": {"content": f"w{number:06d} "}, "finish_reason": "stop" if last else None}
        events = (b"" if number else opening) + _event(word)
        if not comments:
            return events
        tail = b" %d end" % (1 if number else 2) if last else b"" if number else b" 2"
        return b": p %d %d%b\n" % (number, 1000 + number, tail) + events

    def _last(self, *, comments: bool) -> bytes:
        usage = self._usage()
        usage_event = _data({**_COMMON, "object": "chat.completion.chunk", "choices": [], "usage": usage})
        ours = b": usage %b\n" % _json(usage) + b': phases {"queue":0.001,"prefill":0.002,"decode":0.003}\n'
        return (ours if comments else b"") + usage_event + b"data: [DONE]\n\n"

    def _usage(self) -> dict[str, Any]:
        total = self.prompt_tokens + self.tokens
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.tokens, "total_tokens": total}


STEP_TIME = StepTime(base=0.001, prefill=1e-9)
"""Of the toy: so fast that nothing ever waits in a gateway for it."""


def _event(choice: dict[str, Any]) -> bytes:
    return _data({**_COMMON, "object": "chat.completion.chunk", "choices": [choice]})


def _data(payload: dict[str, Any]) -> bytes:
    return b"data: " + _json(payload) + b"\n\n"


def _json(payload: dict[str, Any]) -> bytes:
    return json.dumps(payload, separators=(",", ":")).encode()


def chunk(data: bytes) -> bytes:
    """As HTTP's chunked encoding frames it."""
    return b"%x\r\n%b\r\n" % (len(data), data)
