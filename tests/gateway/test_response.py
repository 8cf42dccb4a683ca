import json
from dataclasses import dataclass, field

import h11
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import Code, RequestError
from paceline_gateway.http.response import EVENT_LIMIT, ResponseWriter, WebSocketResponse, json_fields

LOST = RequestError(Code.STREAM_LOST, "lost")
FULL = RequestError(Code.QUEUE_FULL, "full", retry_after=2.5)


@dataclass
class Wire:
    """What was written, and how it ended."""

    sent: bytes = b""
    kept: bool | None = None
    date: bytes = b"date: now\r\n"
    aborted: bool = field(default=False)
    closing: bool = False

    @property
    def server(self) -> "Wire":
        return self

    def write(self, data: bytes) -> None:
        self.sent += data

    def answered(self, *, keep_alive: bool) -> None:
        self.kept = keep_alive

    def abort(self) -> None:
        self.aborted = True


def parse(wire: Wire) -> tuple[int, dict[str, str], bytes]:
    """What h11 makes of it."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="GET", target="/", headers=[("host", "a")]))
    peer.send(h11.EndOfMessage())
    peer.receive_data(wire.sent)
    if not wire.kept:
        peer.receive_data(b"")
    head = peer.next_event()
    assert isinstance(head, h11.Response)
    body = b""
    while isinstance(event := peer.next_event(), h11.Data):
        body += bytes(event.data)
    assert isinstance(event, h11.EndOfMessage)
    return head.status_code, {name.decode(): value.decode() for name, value in head.headers}, body


def reply(*, keep_alive: bool = True, chunked: bool = True) -> tuple[Wire, ResponseWriter]:
    wire = Wire()
    return wire, ResponseWriter(wire, keep_alive=keep_alive, chunked=chunked)


def test_a_whole_answer() -> None:
    wire, made = reply()
    made.whole(200, json_fields(b"id-1"), b"{}")
    status, headers, body = parse(wire)
    assert (status, body, headers["x-request-id"], wire.kept) == (200, b"{}", "id-1", True)


@given(st.lists(st.binary(max_size=200), max_size=8), st.booleans(), st.booleans())
def test_a_stream_arrives_as_it_was_written(pieces: list[bytes], keep_alive: bool, chunked: bool) -> None:
    wire, made = reply(keep_alive=keep_alive, chunked=chunked)
    made.begin(200, b"content-type: text/event-stream\r\n", b"first")
    for piece in pieces:
        made.more(piece)
    made.end(b"last")
    assert wire.kept == (keep_alive and chunked)
    status, headers, body = parse(wire)
    assert (status, body) == (200, b"first" + b"".join(pieces) + b"last")
    assert ("connection" in headers) == (not wire.kept)


def test_an_error_before_the_first_byte_is_an_answer() -> None:
    wire, made = reply()
    made.fail(FULL, b"x-request-id: 1\r\n")
    status, headers, body = parse(wire)
    assert (status, headers["retry-after"], headers["retry-after-ms"]) == (503, "3", "2500")
    assert json.loads(body)["error"]["code"] == "queue_full"


def test_an_error_after_it_is_an_event() -> None:
    wire, made = reply()
    made.begin(200, b"", b"data: {}\n\n")
    made.fail(LOST)
    events = parse(wire)[2].split(b"\n\n")
    assert json.loads(events[1].removeprefix(b"data: "))["error"]["code"] == "stream_lost"
    assert events[2] == b"data: [DONE]"


def test_an_error_after_half_an_event_is_an_event_of_its_own() -> None:
    wire, made = reply()
    made.begin(200, b"", b"data: {}\n\n")
    made.more(b'data: {"half":1}\n')
    made.fail(LOST)
    blocks = [block for block in parse(wire)[2].split(b"\n\n") if block.strip()]
    assert blocks[1] == b'data: {"half":1}'
    assert json.loads(blocks[2].strip().removeprefix(b"data: "))["error"]["code"] == "stream_lost"


def test_the_client_hears_nothing_after_the_end() -> None:
    wire, made = reply()
    made.whole(200, b"", b"ok")
    sent = wire.sent
    made.whole(200, b"", b"again")
    made.begin(200, b"", b"again")
    made.more(b"x")
    made.end()
    made.fail(LOST)
    assert wire.sent == sent


def test_leaving_is_heard_once_and_not_after_the_end() -> None:
    heard: list[bool] = []
    _, left = reply()
    left.on_gone = heard.append
    left.gone(stalled=True)
    left.gone()
    _, ended = reply()
    ended.on_gone = heard.append
    ended.end()
    ended.gone()
    assert heard == [True]


def test_what_is_held_goes_out_with_the_end_whether_good_or_bad() -> None:
    for fails in (False, True):
        wire, made = reply()
        made.hold()
        made.begin(200, b"", b"first\n\n")
        made.more(b"second\n\n")
        assert wire.sent == b""
        made.fail(LOST) if fails else made.end()
        assert parse(wire)[2].startswith(b"first\n\nsecond\n\n" + b"data: " * fails)


class Channel:
    """A WebSocket that keeps its messages."""

    date, closing = b"", False

    def __init__(self) -> None:
        self.server = self
        self.sent: list[bytes] = []
        self.aborted = False

    def send(self, messages: list[bytes]) -> None:
        self.sent += messages

    def write(self, data: bytes) -> None:
        raise AssertionError(data)

    def answered(self, *, keep_alive: bool) -> None:
        pass

    def abort(self) -> None:
        self.aborted = True


def test_an_event_that_never_ends_breaks_its_stream_off() -> None:
    channel = Channel()
    reply = WebSocketResponse(channel)
    reply.begin(200, b"", b"data: 1\n\ndata: ")
    for _ in range(EVENT_LIMIT >> 16):
        assert not channel.aborted
        reply.more(b"x" * (1 << 16))
    assert channel.aborted
    assert channel.sent == [b"1"]
