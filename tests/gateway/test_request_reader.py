"""Bytes in, requests out: limits, refusals, and every way in which two parsers could disagree."""

from itertools import pairwise

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import Code, RequestError
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.limits import SharedLimit
from paceline_gateway.http.message import Head, HttpRequest
from paceline_gateway.http.request_reader import PIPELINE_LIMIT, RejectedRequest, RequestReader

LIMITS = HttpLimits(head_bytes=2048, body_bytes=4096, memory_bytes=6000)
POST = b"POST /v1/chat/completions?x=1 HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"


def reader(memory: SharedLimit | None = None, gate: RequestError | None = None) -> RequestReader:
    return RequestReader(LIMITS, memory or SharedLimit(LIMITS.memory_bytes), lambda _: gate, lambda: 7.0)


def read(*packets: bytes) -> list[HttpRequest | RejectedRequest]:
    made = reader()
    for packet in packets:
        made.feed(packet)
    return list(made.ready)


def only_refusal(*packets: bytes) -> RejectedRequest:
    (item,) = read(*packets)
    assert isinstance(item, RejectedRequest)
    return item


@pytest.mark.parametrize(
    ("begin", "spoken"), [(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"), (b"\x16\x03\x01\x02\x00\x01\x00", "TLS")]
)
def test_another_protocol_is_called_by_its_name(begin: bytes, spoken: str) -> None:
    assert f"This is {spoken}; speak plain HTTP/1.1 here." in only_refusal(begin).error.message


def test_a_request_is_read_whole() -> None:
    (item,) = read(POST)
    assert isinstance(item, HttpRequest)
    assert item.head == Head("POST", "/v1/chat/completions", {b"host": b"a", b"content-length": b"5"})
    assert (item.body, item.received, item.keep_alive, item.chunked) == (b"hello", 7.0, True, True)


@given(st.lists(st.integers(0, 400), max_size=10))
def test_the_cuts_between_packets_do_not_matter(cuts: list[int]) -> None:
    text = (
        POST
        + b"GET /b HTTP/1.1\r\nhost: b\r\n\r\n"
        + CHUNKED
        + b"3;ext=1\r\nabc\r\n2\r\nde\r\n0\r\nx-trailer: 1\r\n\r\n"
    )
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    items = read(*(text[a:b] for a, b in pairwise(places)))
    assert [item.head.path for item in items if isinstance(item, HttpRequest)] == ["/v1/chat/completions", "/b", "/a"]
    assert [item.body for item in items if isinstance(item, HttpRequest)] == [b"hello", b"", b"abcde"]


def test_what_came_before_a_fault_is_still_served() -> None:
    first, second = read(POST + b"nonsense\r\n\r\n")
    assert isinstance(first, HttpRequest)
    assert isinstance(second, RejectedRequest)


def test_a_head_over_the_limit_is_refused_before_it_ends() -> None:
    packets = [b"GET / HTTP/1.1\r\nhost: a\r\nx: ", *[b"y" * 500] * 6]
    assert only_refusal(*packets).error.code is Code.HEADERS_TOO_LARGE


def test_a_head_over_the_limit_in_one_packet_is_refused_too() -> None:
    refusal = only_refusal(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 3000 + b"\r\n\r\n")
    assert refusal.error.code is Code.HEADERS_TOO_LARGE


def test_a_head_over_the_limit_is_refused_by_its_first_packet() -> None:
    refusal = only_refusal(b"GET / HTTP/1.1\r\nhost: a\r\nx: " + b"y" * 3000)
    assert refusal.error.code is Code.HEADERS_TOO_LARGE


def test_headers_are_limited_in_number_too() -> None:
    refusal = only_refusal(b"GET / HTTP/1.1\r\nhost: a\r\n" + b"a:\r\n" * 70 + b"\r\n")
    assert refusal.error.code is Code.HEADERS_TOO_LARGE


def test_an_announced_body_over_the_limit_is_refused_before_it_comes() -> None:
    refusal = only_refusal(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 4097\r\n\r\n")
    assert refusal.error.code is Code.REQUEST_TOO_LARGE


def test_a_chunked_body_is_refused_when_it_passes_the_limit() -> None:
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    refusal = only_refusal(CHUNKED + chunk * 4, b"1\r\nx\r\n")
    assert refusal.error.code is Code.REQUEST_TOO_LARGE


@pytest.mark.parametrize("endless", [b"5;" + b"e" * 100, b"0\r\nx-trailer: " + b"t" * 100])
def test_chunk_extensions_and_trailers_have_the_heads_limit(endless: bytes) -> None:
    refusal = only_refusal(CHUNKED, endless, *[b"z" * 700] * 4)
    assert refusal.error.code is Code.HEADERS_TOO_LARGE


def test_many_requests_in_one_packet_are_no_large_head() -> None:
    items = read(b"GET /b HTTP/1.1\r\nhost: b\r\nx: " + b"y" * 900 + b"\r\n\r\n" + POST[:30], POST[30:])
    assert all(isinstance(item, HttpRequest) for item in items)


def test_bodies_of_all_connections_share_one_memory() -> None:
    memory = SharedLimit(6)
    first, second = reader(memory), reader(memory)
    first.feed(POST)
    second.feed(POST)
    (refusal,) = second.ready
    assert isinstance(refusal, RejectedRequest)
    assert refusal.error.code is Code.NO_CAPACITY
    (request,) = first.ready
    assert isinstance(request, HttpRequest)
    memory.give("", len(request.body))
    assert memory.used == 0


@given(
    st.lists(st.sampled_from([POST, POST[:-2], CHUNKED, b"3\r\nabc\r\n", b"0\r\n\r\n", b"junk", b"GET / HTTP/1.1\r\n"]))
)
def test_memory_is_given_back_whatever_came(packets: list[bytes]) -> None:
    memory = SharedLimit(6000)
    made = reader(memory)
    for packet in packets:
        made.feed(packet)
        while made.ready:
            item = made.ready.popleft()
            if isinstance(item, HttpRequest):
                memory.give("", len(item.body))
    made.close()
    assert memory.used == 0


def test_the_gate_refuses_before_the_body() -> None:
    refusal = RequestError(Code.INVALID_API_KEY, "no")
    made = reader(gate=refusal)
    made.feed(POST[:-5])
    (item,) = made.ready
    assert isinstance(item, RejectedRequest)
    assert item.error is refusal
    assert made.deaf


def test_a_refused_request_that_came_whole_keeps_its_connection() -> None:
    made = reader(gate=RequestError(Code.INVALID_API_KEY, "no"))
    made.feed(POST)
    (item,) = made.ready
    assert isinstance(item, RejectedRequest)
    assert item.keep_alive
    assert not made.deaf


def test_a_client_that_waits_for_permission_is_noticed() -> None:
    made = reader()
    made.feed(b"POST / HTTP/1.1\r\nhost: a\r\nexpect: 100-Continue\r\ncontent-length: 5\r\n\r\n")
    assert made.expects
    made.feed(b"hello")
    assert not made.expects
    assert len(made.ready) == 1


def test_a_late_part_is_named() -> None:
    for begun, part in ((POST[:20], "head"), (POST[:-2], "body")):
        made = reader()
        made.feed(begun)
        made.late()
        (item,) = made.ready
        assert isinstance(item, RejectedRequest)
        assert item.error.code is Code.REQUEST_TIMEOUT
        assert part in item.error.message


def test_a_pipeline_has_an_end() -> None:
    items = read(b"GET /b HTTP/1.1\r\nhost: b\r\n\r\n" * (PIPELINE_LIMIT + 1))
    assert sum(isinstance(item, HttpRequest) for item in items) == PIPELINE_LIMIT
    assert isinstance(items[-1], RejectedRequest)


def test_old_clients_get_no_chunks_and_no_second_request() -> None:
    (item,) = read(b"POST /b HTTP/1.0\r\ncontent-length: 2\r\n\r\nhi")
    assert isinstance(item, HttpRequest)
    assert (item.chunked, item.keep_alive, item.body) == (False, False, b"hi")


def test_an_absolute_target_is_its_path() -> None:
    (item,) = read(b"GET http://other.example/v1/models?x HTTP/1.1\r\nhost: a\r\n\r\n")
    assert isinstance(item, HttpRequest)
    assert item.head.path == "/v1/models"


TOKEN = st.text("abcdefghijklmnopqrstuvwxyz-", min_size=1, max_size=12).map(lambda name: f"x-{name}")
VALUE = st.text("abcXYZ019 ,;=/", max_size=20).map(str.strip)


@given(st.dictionaries(TOKEN, VALUE, max_size=6), st.binary(max_size=300), st.booleans())
def test_what_h11_writes_is_read_as_it_was_meant(headers: dict[str, str], body: bytes, chunked: bool) -> None:
    framing = ("transfer-encoding", "chunked") if chunked else ("content-length", str(len(body)))
    peer = h11.Connection(h11.CLIENT)
    lines = [("host", "a"), framing, *headers.items()]
    text = peer.send(h11.Request(method="POST", target="/v1/completions", headers=lines)) or b""
    text += peer.send(h11.Data(data=body)) or b""
    text += peer.send(h11.EndOfMessage()) or b""
    (item,) = read(text)
    assert isinstance(item, HttpRequest)
    assert item.body == body
    assert {name.decode(): value.decode() for name, value in item.head.headers.items()} == dict(lines)


@given(st.binary(max_size=400))
def test_no_bytes_whatever_break_the_reader(data: bytes) -> None:
    made = reader()
    made.feed(data)
    made.feed(data)
    assert all(isinstance(item, HttpRequest | RejectedRequest) for item in made.ready)
