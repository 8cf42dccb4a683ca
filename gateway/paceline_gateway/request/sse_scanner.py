"""Scans a stream as it passes: bytes in, the client's bytes out, no event decoded.

Our workers put comment lines (docs/worker-protocol.md) into the same write as their events; the scanner reads them and
never forwards them. The events of one comment are forwarded together or wait, so that a stream can resume after any
byte that was forwarded; without comments only whole lines are. Nothing is forwarded before the first content: until
then another worker can still answer. Content is a non-empty text in the first event, or any second event, since engines
differ in what else they stream. JSON has no raw line feed, so `\\n:` is always a comment and `\\n\\n` ends an event.

A journal keeps the stream as far as its client has it: raw, with the comment lines as they came. It is parsed only when
the stream must resume elsewhere. Invariant: its lines are exactly the comments whose events were forwarded, in order.
Above `limit` bytes, and after any contradiction, nothing is kept and the stream cannot be resumed.
"""

import re
from typing import Any

import orjson

from paceline_core.errors import Code
from paceline_core.json_limits import CHOICES_PER_REQUEST
from paceline_core.registry.enums import AbortReason, ResumeReason
from paceline_core.wire import MOVED, MoveReason, Resume, ResumedChoice
from paceline_gateway.request.types import TokenUsage, WorkerPhases

LINE_LIMIT = 1 << 20
"""The most bytes of a stream that are held back: of one line, and of all before the first content."""
CODE_LIMIT = 4096
_MOVED = MOVED.encode()
_PLAIN = re.compile(rb"(: p (\d+) \d+(,[\d,]+)?(?: 1 end)?\n)(data: .*\n\n)")
"""A piece of one event: nearly everything that our workers send."""
_COMMENT = re.compile(rb"^:.*\n", re.MULTILINE)
_CONTENT = re.compile(rb'"(?:content|text|reasoning_content|reasoning|refusal|arguments|delta)":\s*"[^"]')
_COUNT = {
    name: re.compile(rb'"%b":\s*(\d{1,9})(?![\d.eE])' % pattern)
    for name, pattern in (
        (b"prompt_tokens", b"(?:prompt|input)_tokens"),
        (b"completion_tokens", b"(?:completion|output)_tokens"),
        (b"cached_tokens", b"cached_tokens"),
    )
}
"""Negative, broken and absurdly large numbers are not counts."""
_LAST = re.compile(rb"^event: (?:response\.(?:completed|incomplete|failed)|message_stop)\n", re.MULTILINE)
"""The event that ends a stream of `/v1/responses` or `/v1/messages`; not all engines send `[DONE]` after it."""
_PROMPT = re.compile(rb": prompt (\d{1,9}) (\d{1,9})\n")
_USAGE_SPAN = 512
_NUMBER = int | float
_SPENT = frozenset(WorkerPhases._fields)
BEGINNING = 512
_IDENTITY = re.compile(rb'"id":\s*"([^"\\]{1,128})"')
_CREATED = re.compile(rb'"created(?:_at)?":\s*(\d{1,15})\b')


class StreamJournal:
    """A stream's journal, over all workers that served it."""

    __slots__ = ("_beginning", "_limit", "_lines", "abort_reason")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = bytearray()
        self._beginning = b""
        self.abort_reason: AbortReason | None = None
        """Why the stream cannot be resumed, if known already."""

    def begin(self, first: bytes) -> None:
        """The first events, which name the stream."""
        if not self._beginning:
            self._beginning = first[:BEGINNING]

    def add(self, line: bytes) -> None:
        """A comment whose events are forwarded."""
        if self.abort_reason is None:
            self._lines += line
            if len(self._lines) > self._limit:
                self.give_up(AbortReason.JOURNAL_OVERFLOW)

    def give_up(self, why: AbortReason) -> None:
        """Keep nothing more."""
        self.abort_reason = why
        self._lines = bytearray()

    def resume(self) -> Resume | None:
        """The stream so far; None if it cannot be resumed, and then `abort_reason` is set."""
        if self.abort_reason is None:
            identity, created = _IDENTITY.search(self._beginning), _CREATED.search(self._beginning)
            choices = _choices(self._lines.splitlines())
            if identity and choices and (created or b"message_start" in self._beginning):
                return Resume(id=identity[1].decode(), created=int(created[1]) if created else 0, choices=choices)
            self.give_up(AbortReason.INCONSISTENT)
        return None


def _choices(lines: list[bytearray]) -> list[ResumedChoice]:
    """Empty unless each choice's ids begin at 0 and have no gap.

    Ids without an event may come twice: a worker that resumes the stream may generate them again.
    """
    ids_of: dict[int, list[int]] = {}
    delivered: dict[int, int] = {}
    ended: set[int] = set()
    try:
        for choice, position, ids, events, last in map(_read, lines):
            so_far = ids_of.setdefault(choice, [])
            if not delivered.get(choice, 0) <= position <= len(so_far) or choice >= CHOICES_PER_REQUEST:
                return []
            so_far[position:] = ids
            if events:
                delivered[choice] = len(so_far)
            if last:
                ended.add(choice)
    except ValueError:
        return []
    numbers = range(max(ids_of, default=-1) + 1)
    return [_choice(ids_of.get(at, []), delivered.get(at), ended=at in ended) for at in numbers]


def _choice(ids: list[int], delivered: int | None, *, ended: bool) -> ResumedChoice:
    """Without `delivered` where it adds nothing: all of some ids, or no event at all."""
    if ids and (delivered := delivered or 0) == len(ids):
        delivered = None
    return ResumedChoice(ids=ids, ended=ended, delivered=delivered)


def _read(line: bytearray) -> tuple[int, int, list[int], int, bool]:
    fields = bytes(line[2:]).split()
    choice, (position, ids, *rest) = (0, fields[1:]) if fields[0] == b"p" else (int(fields[1]), fields[2:])
    new = [] if ids == b"-" else [int(token) for token in ids.split(b",")]
    return choice, int(position), new, int(rest[0]) if rest else 1, b"end" in rest


class SseScanner:
    """The stream of one attempt. `began`: content was forwarded; `done`: `[DONE]` was; `failed`: an error event with
    code `error` was.

    `moved`: the worker released the stream. `journal`, if any, records what is forwarded. `resumed`: this attempt
    continues a stream.
    """

    __slots__ = (
        "_counted", "_ending", "_events", "_held", "_journal", "_meter", "_positions", "_rest", "_resumed", "_usage",
        "began", "done", "error", "failed", "fresh", "moved",
    )  # fmt: skip

    def __init__(self, meter: TokenUsage, journal: StreamJournal | None = None, *, resumed: bool = False) -> None:
        self.began = resumed
        self.done = False
        self.failed = False
        self.error: Code | None = None
        self.moved: ResumeReason | None = None
        self.fresh = 0
        self._meter = meter
        self._journal = journal
        self._held = b""
        self._rest = b""
        self._usage = b""
        self._counted = False
        self._ending = False
        self._events = 0
        self._positions = False
        self._resumed = resumed

    def feed(self, packet: bytes) -> bytes:
        """The bytes that may be forwarded now. `fresh` is the number of tokens in this packet."""
        if self._rest:
            packet, self._rest = self._rest + packet, b""
        meter, plain = self._meter, _PLAIN.fullmatch(packet)
        before = meter.output
        if plain is None:
            lines = self._pieces(packet)
            self.fresh = max(meter.output - before, 0) or _events(lines)
            if not (self._positions or meter.counted):
                meter.output += len(_CONTENT.findall(lines))
        else:
            lines = self._plain(plain)
            self.fresh = max(meter.output - before, 1)
        if self.began:
            return lines
        self._held += lines
        self._events += _events(lines)
        early = not self._events or (self._events < 2 and _CONTENT.search(self._held) is None)
        if early and len(self._held) <= LINE_LIMIT:
            return b""
        self.began = True
        held, self._held = self._held, b""
        if self._journal is not None:
            self._journal.begin(held)
        return held

    def finish(self) -> bytes:
        """The stream is over: returns the held bytes and reads the counts."""
        if not self._counted:
            self._read_usage(self._usage)
        rest, self._held, self._rest = self._held + self._rest, b"", b""
        return rest

    def _read_usage(self, line: bytes) -> None:
        """Read counts; a resumed stream keeps the cached tokens of its first worker."""
        cached = self._meter.cached
        read_usage(line, self._meter)
        if self._resumed:
            self._meter.cached = cached

    def _plain(self, piece: re.Match[bytes]) -> bytes:
        line, position, further, event = piece.groups()
        self._positions = True
        self._meter.output = int(position) + (1 if further is None else further.count(b",") + 1)
        if self._journal is not None:
            self._journal.add(line)
        return event

    def _pieces(self, packet: bytes) -> bytes:
        """The bytes of any other packet that may be forwarded. From the first incomplete comment on, everything
        waits."""
        retained, at, size = list[bytes](), 0, len(packet)
        while at < size:
            plain = _PLAIN.match(packet, at)
            if plain is not None:
                retained.append(self._plain(plain))
                at = plain.end()
                continue
            begin = at if packet.startswith(b":", at) else packet.find(b"\n:", at) + 1 or size
            if begin == size:
                lines = packet[at:]
                if not lines.endswith(b"\n") and len(lines) <= LINE_LIMIT:
                    whole = lines.rfind(b"\n") + 1
                    lines, self._rest = lines[:whole], lines[whole:]
                self._keep(lines, retained)
                break
            self._keep(packet[at:begin], retained)
            end = self._comment(packet, begin)
            if end is None and size - begin <= LINE_LIMIT:
                self._rest = packet[begin:]
                break
            if end is None:
                self._give_up()
                self._keep(_COMMENT.sub(b"", packet[begin:]), retained)
                break
            at = packet.find(b"\n", begin) + 1
            self._keep(packet[at:end], retained)
            at = max(at, end)
        return b"".join(retained)

    def _keep(self, lines: bytes, retained: list[bytes]) -> None:
        """Forward these lines; look for the end of the stream in them."""
        if not lines:
            return
        if lines.find(b"data: [DONE]") >= 0:  # `in` takes twice as long
            self.done = True
        if self._ending or lines.find(b"event: ") >= 0:
            self._look_for_last(lines)
        if lines.find(b'"usage":') >= 0:
            self._usage = lines
            if not self._positions:
                self._read_usage(lines)
        if lines.find(b'data: {"error"') >= 0 or lines.find(b"event: error\n") >= 0:
            self.failed, self.error = True, _event_code(lines)
        retained.append(lines)

    def _look_for_last(self, lines: bytes) -> None:
        """Set `done` at the event that ends the stream, once it is complete: its lines may come in pieces."""
        last = _LAST.search(lines)
        if last is None and not self._ending:
            return
        rest = lines if last is None else lines[last.end() :]
        self.failed = self.failed or (last is not None and b"response.failed" in last[0])
        self._ending = True
        self.done = self.done or rest.startswith(b"\n") or b"\n\n" in rest

    def _comment(self, packet: bytes, begin: int) -> int | None:
        """Process a comment if its events are complete; returns where they end, None if not yet."""
        end = packet.find(b"\n", begin) + 1
        line = packet[begin:end]
        if not end:
            return None
        if line.startswith((b": p ", b": c ")):
            return self._piece(line, packet, end)
        if line.startswith(b": usage "):
            if packet.find(b"\ndata: [DONE]\n\n", begin) < 0:
                return None
            self._read_usage(line)
            self._counted = True
        elif (prompt := _PROMPT.fullmatch(line)) is not None:
            self._meter.prompt = int(prompt[1])
            if not self._resumed:
                self._meter.cached = min(int(prompt[2]), self._meter.prompt)
        elif line.startswith(b": phases "):
            self._meter.worker = _phases(line[9:])
        elif line.startswith(_MOVED):
            word = line[len(_MOVED) :].strip().decode("latin-1")
            # an unknown word counts as a lost connection
            self.moved = ResumeReason(word) if word in set(MoveReason) else ResumeReason.CONNECTION
        return end

    def _piece(self, line: bytes, packet: bytes, end: int) -> int | None:
        """Process a comment `: p` or `: c`: choice, position, ids, and the number of its events."""
        fields = line[2:].split()
        if fields[:1] == [b"p"]:
            fields.insert(1, b"0")
        fields += [b"1"] * (len(fields) == 4)
        if len(fields) < 5 or not (fields[1].isdigit() and fields[2].isdigit() and fields[4].isdigit()):
            self._give_up()
            return end
        self._positions = True
        position, ids = int(fields[2]), 0 if fields[3] == b"-" else fields[3].count(b",") + 1
        begin = end
        for _ in range(int(fields[4])):
            end = packet.find(b"\n\n", end) + 2
            if end < 2:
                return None
        if packet.find(b"\n:", begin, end) >= 0:
            self._give_up()
            return begin
        self._meter.output = position + ids if line[2:3] == b"p" else self._meter.output + ids
        if self._journal is not None:
            self._journal.add(line)
        return end

    def _give_up(self) -> None:
        if self._journal is not None:
            self._journal.give_up(AbortReason.INCONSISTENT)


def _events(lines: bytes) -> int:
    return lines.count(b"\ndata:") + lines.startswith(b"data:")


def read_usage(text: bytes, meter: TokenUsage) -> None:
    """Read OpenAI's `usage` in a JSON text, if any; the last one counts."""
    start = max(text.rfind(b'"usage"'), text.rfind(b": usage "))
    if start < 0:
        return
    span = text[start : start + _USAGE_SPAN]
    found = {name: int(match[1]) for name, pattern in _COUNT.items() if (match := pattern.search(span))}
    meter.prompt = found.get(b"prompt_tokens", meter.prompt)
    meter.output = found.get(b"completion_tokens", meter.output)
    meter.counted = meter.counted or b"completion_tokens" in found
    meter.cached = found.get(b"cached_tokens", meter.cached)


def read_code(text: bytes) -> Code | None:
    """The code of an OpenAI error object, if known; a text longer than CODE_LIMIT is not parsed."""
    if len(text) > CODE_LIMIT:
        return None
    try:
        return Code(orjson.loads(text)["error"]["code"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None


def _event_code(lines: bytes) -> Code | None:
    """The code of the first error event; Anthropic's own form has only a type."""
    if (begin := lines.find(b'data: {"error"')) >= 0:
        return _code_at(lines, begin)
    code = _code_at(lines, lines.find(b"data: ", max(lines.find(b"event: error\n"), 0)))
    return Code.INVALID_REQUEST if code is None and lines.find(b'"invalid_request_error"') >= 0 else code


def _code_at(lines: bytes, begin: int) -> Code | None:
    return read_code(lines[begin + len(b"data: ") : lines.find(b"\n", begin)])


def read_server_timing(value: bytes, meter: TokenUsage) -> None:
    """Read the worker's phases in a `Server-Timing` header (milliseconds)."""
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
    return WorkerPhases(**{k: float(v) for k, v in spent.items() if k in _SPENT and isinstance(v, _NUMBER)})
