"""The gateway's two parsers against h11: what both take means the same to both, and h11 never refuses what we take."""

from collections.abc import Sequence
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from tests.every import cases
from tests.gateway import smuggling
from tests.gateway.h11_oracle import HARMLESS, STRICTER, Heard, Message, hear_requests, hear_response, plain
from tests.gateway.http_grammar import mutants, pieces, pipelines, responses

from paceline_core.errors import Code
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection_pool import DisconnectReason, UpstreamConnection
from paceline_gateway.http.limits import SharedLimit
from paceline_gateway.http.message import Headers, HttpRequest
from paceline_gateway.http.request_reader import RequestReader

LIMITS = HttpLimits(head_bytes=8192, body_bytes=4096)
CUTS = st.lists(st.integers(0, 1 << 16), max_size=8)


def read(packets: Sequence[bytes]) -> Heard:
    memory, heard = SharedLimit(1 << 20), Heard()
    reader = RequestReader(LIMITS, memory, lambda _: None, lambda: 0.0)
    for packet in packets:
        reader.feed(packet)
    for item in reader.ready:
        if not isinstance(item, HttpRequest):
            heard.fault = item.error.message
            break
        head = item.head
        heard.messages.append(Message((head.method, head.path), plain(head.headers.items()), item.body))
        if not item.keep_alive or head.upgrade:
            heard.closed = True
            break
    reader.close()
    assert memory.used == 0
    return heard


def compare(data: bytes, cuts: Sequence[int] = ()) -> None:
    ours, theirs = read(pieces(data, cuts)), hear_requests(data)
    both = min(len(ours.messages), len(theirs.messages))
    assert ours.messages == theirs.messages[: len(ours.messages)], "laxer than h11, or of another meaning"
    if len(theirs.messages) > both:
        known = ours.closed or any(part in ours.fault for part in STRICTER)
        assert known, f"refused for no known reason: {ours.fault}"
    elif theirs.fault or theirs.closed:
        assert ours.fault or ours.closed, "waits for the rest of what can only be refused"


@given(pipelines(), CUTS)
@example(b"GET http://h?x=/v1/models HTTP/1.1\r\nhost: a\r\n\r\n", [])
@example(b"POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: a\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", [])
def test_requests_mean_the_same_to_h11(data: bytes, cuts: list[int]) -> None:
    compare(data, cuts)


@given(st.integers(0, 1 << 32), CUTS)
def test_damaged_requests_mean_the_same_to_h11(seed: int, cuts: list[int]) -> None:
    texts = [*smuggling.REFUSED.values(), *(text for text, _ in smuggling.READ.values())]
    for data in mutants(texts, seed, 10):
        compare(data, cuts)


@given(
    st.lists(st.binary(max_size=40), min_size=2, max_size=6),
    st.sampled_from(["connection: keep-alive", "connection: close", "expect: 100-continue", "x-a: \xff", "Host: b"]),
    st.integers(0, 1 << 32),
    CUTS,
)
def test_heads_that_repeat_mean_the_same_to_h11(bodies: list[bytes], line: str, seed: int, cuts: list[int]) -> None:
    head = f"POST /v1/completions HTTP/1.1\r\nhost: a\r\nContent-Length: %d\r\n{line}\r\n\r\n".encode("latin-1")
    requests = [head % len(body) + body for body in bodies]
    borders = [sum(map(len, requests[:count])) for count in range(1, len(requests))]
    compare(b"".join(requests), [*borders, *cuts])
    for data in mutants(requests, seed, 5):
        compare(requests[0] + data + requests[1], [len(requests[0]), len(requests[0]) + len(data)])


@cases("name", smuggling.REFUSED)
@cases("cuts", [(), range(4096)])
def test_what_two_parsers_could_read_differently_is_refused(name: str, cuts: Sequence[int]) -> None:
    reader = RequestReader(LIMITS, SharedLimit(1 << 20), lambda _: None, lambda: 0.0)
    for packet in pieces(smuggling.REFUSED[name] + smuggling.GET, cuts):
        reader.feed(packet)
    (refusal,) = reader.ready
    assert not isinstance(refusal, HttpRequest)
    assert refusal.error.code in {Code.INVALID_REQUEST, Code.REQUEST_TOO_LARGE}
    assert not refusal.keep_alive
    compare(smuggling.REFUSED[name] + smuggling.GET, cuts)


@cases("name", smuggling.READ)
@cases("cuts", [(), range(4096)])
def test_what_is_odd_but_clear_is_read(name: str, cuts: Sequence[int]) -> None:
    data, meant = smuggling.READ[name]
    heard = read(pieces(data, cuts))
    assert [(*message.start, message.body) for message in heard.messages] == meant
    assert not heard.fault
    compare(data, cuts)


class Ear:
    """What a call hears of a response."""

    def __init__(self) -> None:
        self.message: Message | None = None
        self.ended = False
        self.loss: DisconnectReason | None = None

    def head(self, status: int, headers: Headers) -> None:
        assert self.message is None
        self.message = Message((str(status),), plain(headers.items()))

    def data(self, data: bytes, last: bool) -> None:
        assert self.message is not None
        assert not self.ended
        self.message.body += data

    def end(self) -> None:
        assert self.message is not None
        assert not self.ended
        assert self.loss is None
        self.ended = True

    def lost(self, loss: DisconnectReason) -> None:
        assert not self.ended
        assert self.loss is None
        self.loss = loss


class Line:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.closed = False

    def get_extra_info(self, _: str) -> Any:
        return self

    def setsockopt(self, *_: int) -> None: ...

    def writelines(self, _: list[bytes]) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    abort = close


def answer(packets: Sequence[bytes], *, eof: bool) -> tuple[Ear, bool]:
    """What is heard of a response that comes in these packets, and whether the connection is kept for others."""
    ear, line = Ear(), Line()
    kept: list[UpstreamConnection] = []
    upstream = UpstreamConnection(kept.append, lambda _: None)
    upstream.connection_made(line)  # type: ignore[arg-type]
    upstream.send([b""], ear)
    for packet in packets:
        if not line.closed:
            upstream.data_received(packet)
    if eof or line.closed:
        upstream.connection_lost(None)
    return ear, bool(kept) and not line.closed


def compare_response(data: bytes, cuts: Sequence[int], *, eof: bool) -> None:
    ear, kept = answer(pieces(data, cuts), eof=eof)
    theirs, reusable, fault = hear_response(data, eof=eof)
    if ear.ended and not fault.startswith(HARMLESS):
        assert not fault, "laxer than h11"
        assert ear.message == theirs
        assert reusable or not kept, "kept for another request, though more may come of this one"
    if eof:
        assert ear.ended or ear.loss is not None, "hangs"


@given(responses(), CUTS, st.booleans())
def test_responses_mean_the_same_to_h11(data: bytes, cuts: list[int], eof: bool) -> None:
    compare_response(data, cuts, eof=eof)


@given(st.integers(0, 1 << 32), CUTS, st.booleans())
def test_damaged_responses_mean_the_same_to_h11(seed: int, cuts: list[int], eof: bool) -> None:
    texts = [text for text, _, _ in smuggling.RESPONSES.values() if text]
    for data in mutants(texts, seed, 10):
        compare_response(data, cuts, eof=eof)


@cases("name", smuggling.RESPONSES)
@cases("cuts", [(), range(4096)])
def test_a_worker_that_lies_is_heard_to_the_end_of_what_is_clear(name: str, cuts: Sequence[int]) -> None:
    data, body, kept = smuggling.RESPONSES[name]
    ear, keeps = answer(pieces(data, cuts), eof=True)
    assert (ear.message.body if ear.ended and ear.message else None) == body
    assert keeps == kept
    compare_response(data, cuts, eof=True)
