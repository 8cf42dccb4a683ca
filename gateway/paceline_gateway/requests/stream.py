"""What the gateway learns from a stream that passes: bytes in, the client's bytes out, no event decoded.

Our workers put comment lines (`: p <position> <ids>`, `: phases {...}`, `: usage {...}`) into the same write as their
events; they are read here and never forwarded. Only whole lines go on, and nothing before the first content: until
then the request can still be answered by another worker. Content is a non-empty text in the first event, or any second
event, since engines differ in what else they stream. JSON holds no raw line feed, so `\\n:` is always a comment.
"""

import re
from typing import Any

import orjson

from paceline_gateway.requests.nouns import Meter, WorkerPhases

LINE_LIMIT = 1 << 20
_CONTENT = re.compile(rb'"(?:content|text|reasoning_content|reasoning|refusal|arguments|delta)":\s*"[^"]')
_COUNT = {
    name: re.compile(rb'"%b":\s*(\d+)' % name) for name in (b"prompt_tokens", b"completion_tokens", b"cached_tokens")
}
_USAGE_SPAN = 512
_SPENT = frozenset(WorkerPhases.__dataclass_fields__)


class StreamScan:
    """One attempt's stream. `began`: content has passed; `done`: `[DONE]` has; `failed`: an error event has."""

    __slots__ = ("_events", "_held", "_meter", "_rest", "_usage", "began", "done", "failed", "fresh")

    def __init__(self, meter: Meter) -> None:
        self.began = False
        self.done = False
        self.failed = False
        self.fresh = 0
        self._meter = meter
        self._held = b""
        self._rest = b""
        self._usage = b""
        self._events = 0

    def feed(self, packet: bytes) -> bytes:
        """What may be forwarded now. `fresh` is how many tokens this packet brought."""
        lines = packet if not self._rest and packet.endswith(b"\n") else self._whole_lines(packet)
        before = self._meter.output
        if lines.startswith(b": p "):  # what all packets of our workers begin with
            end = lines.find(b"\n") + 1
            self._position(lines[4:end])
            lines = lines[end:]
        if b"\n:" in lines or lines.startswith(b":"):
            lines = self._without_comments(lines)
        if b"[DONE]" in lines and b"data: [DONE]" in lines:
            self.done = True
        if b'"usage":' in lines:
            self._usage = lines
        if b'data: {"error"' in lines:
            self.failed = True
        self.fresh = self._meter.output - before or _events(lines)
        return lines if self.began else self._first(lines)

    def finish(self) -> bytes:
        """The stream is over: whatever was held back, and the counts."""
        read_usage(self._usage, self._meter)
        rest, self._held, self._rest = self._held + self._rest, b"", b""
        return rest

    def _whole_lines(self, packet: bytes) -> bytes:
        if self._rest:
            packet = self._rest + packet
        if packet.endswith(b"\n") or len(packet) > LINE_LIMIT:
            self._rest = b""
            return packet
        cut = packet.rfind(b"\n") + 1
        self._rest = packet[cut:]
        return packet[:cut]

    def _without_comments(self, lines: bytes) -> bytes:
        kept = []
        for line in lines.splitlines(keepends=True):
            if line.startswith(b":"):
                self._comment(line)
            else:
                kept.append(line)
        return b"".join(kept)

    def _comment(self, line: bytes) -> None:
        if line.startswith(b": p "):
            self._position(line[4:])
        elif line.startswith(b": phases "):
            self._meter.worker = _phases(line[9:])
        elif line.startswith(b": usage "):
            read_usage(line, self._meter)

    def _position(self, text: bytes) -> None:
        """`<position> <ids>`: how many tokens there are now."""
        position, _, ids = text.partition(b" ")
        if position.isdigit():
            self._meter.output = int(position) + ids.count(b",") + (not ids.isspace())

    def _first(self, lines: bytes) -> bytes:
        self._held += lines
        self._events += _events(lines)
        if not self._events or (self._events < 2 and _CONTENT.search(self._held) is None):
            return b""
        self.began = True
        held, self._held = self._held, b""
        return held


def _events(lines: bytes) -> int:
    return lines.count(b"\ndata:") + lines.startswith(b"data:")


def read_usage(text: bytes, meter: Meter) -> None:
    """Take OpenAI's `usage` out of a JSON text, if there is one; the last one counts."""
    start = max(text.rfind(b'"usage"'), text.rfind(b": usage "))
    if start < 0:
        return
    span = text[start : start + _USAGE_SPAN]
    found = {name: int(match[1]) for name, pattern in _COUNT.items() if (match := pattern.search(span))}
    meter.prompt = found.get(b"prompt_tokens", meter.prompt)
    meter.output = found.get(b"completion_tokens", meter.output)
    meter.cached = found.get(b"cached_tokens", meter.cached)


def read_server_timing(value: bytes, meter: Meter) -> None:
    """Take the worker's phases out of a `Server-Timing` header (milliseconds)."""
    spent: dict[str, float] = {}
    for entry in value.decode("latin-1").split(","):
        name, _, duration = entry.strip().partition(";dur=")
        if name in _SPENT and duration.replace(".", "", 1).isdigit():
            spent[name] = float(duration) / 1000
    if spent:
        meter.worker = WorkerPhases(**spent)


def _phases(text: bytes) -> WorkerPhases | None:
    try:
        spent: Any = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(spent, dict):
        return None
    return WorkerPhases(**{k: float(v) for k, v in spent.items() if k in _SPENT and isinstance(v, int | float)})
