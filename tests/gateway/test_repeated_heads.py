"""A head that repeats is known by its bytes, judged anew where that could differ, and never stands for another one."""

import pytest
from tests.every import cases

from paceline_core.errors import Code, RequestError
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.limits import SharedLimit
from paceline_gateway.http.message import Head, HttpRequest
from paceline_gateway.http.request_reader import (
    MAX_BYTES,
    CachedHead,
    RejectedRequest,
    RequestReader,
    remember,
    text_of,
)

LIMITS = HttpLimits(head_bytes=2048, body_bytes=4096, memory_bytes=6000)
HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-length: %b\r\nx-a: 1\r\n\r\n"
KNOWN = remember(HEAD % b"5", Head("POST", "/", {b"content-length": b"5"}), chunked=True)


class Gate:
    """Refuses from the moment it is shut; notes of each head what it, or one like it, was judged by before."""

    def __init__(self) -> None:
        self.shut = False
        self.seen: list[object] = []

    def __call__(self, head: Head) -> RequestError | None:
        self.seen.append(head.judged)
        head.judged = "judged"
        return RequestError(Code.INVALID_API_KEY, "no") if self.shut else None


def reader(gate: Gate, memory: SharedLimit | None = None) -> RequestReader:
    return RequestReader(LIMITS, memory or SharedLimit(LIMITS.memory_bytes), gate, lambda: 7.0)


def known() -> CachedHead:
    assert KNOWN is not None
    return KNOWN


def request(body: bytes) -> bytes:
    return HEAD % b"%d" % len(body) + body


def test_a_request_like_the_last_one_is_read_with_its_own_length_and_body() -> None:
    made = reader(Gate())
    for body in (b"hello", b"", b"longer than that"):
        made.feed(request(body))
    assert [
        (item.body, item.head.headers[b"content-length"]) for item in made.ready if isinstance(item, HttpRequest)
    ] == [
        (b"hello", b"5"),
        (b"", b"0"),
        (b"longer than that", b"16"),
    ]


def test_each_is_shown_to_the_gate() -> None:
    gate = Gate()
    made = reader(gate)
    made.feed(request(b"a"))
    gate.shut = True
    made.feed(request(b"b"))
    assert isinstance(made.ready[1], RejectedRequest)


@pytest.mark.parametrize("cut", [1, 40, 85, len(HEAD) + 2])
def test_it_may_come_in_pieces_and_another_one_behind_it(cut: int) -> None:
    made = reader(Gate())
    made.feed(request(b"one"))
    data = request(b"second") + b"GET /b HTTP/1.1\r\nhost: b\r\n\r\n" + request(b"last")
    made.feed(data[:cut])
    made.feed(data[cut:])
    assert [item.body for item in made.ready if isinstance(item, HttpRequest)] == [b"one", b"second", b"", b"last"]


def test_a_body_over_the_limit_is_refused_before_it_comes() -> None:
    made = reader(Gate())
    made.feed(request(b"a"))
    made.feed(HEAD % b"5000")
    (_, refusal) = made.ready
    assert isinstance(refusal, RejectedRequest)
    assert refusal.error.code is Code.REQUEST_TOO_LARGE
    assert made.deaf


def test_the_rest_of_a_body_that_came_too_late_makes_no_request() -> None:
    made = reader(Gate())
    made.feed(request(b"a"))
    made.feed((HEAD % b"5") + b"he")
    made.late()
    made.feed(b"llo")
    (_, refusal) = made.ready
    assert isinstance(refusal, RejectedRequest)
    assert refusal.error.code is Code.REQUEST_TIMEOUT


def test_a_head_whose_body_came_later_is_known_too() -> None:
    gate = Gate()
    made = reader(gate)
    made.feed(HEAD % b"5")
    made.feed(b"hello")
    made.feed(request(b"again"))
    assert gate.seen == [None, "judged"]
    first, second = (item.head for item in made.ready if isinstance(item, HttpRequest))
    assert second == first
    assert second.headers is not first.headers


def test_memory_is_counted_and_given_back() -> None:
    memory = SharedLimit(100)
    made = reader(Gate(), memory)
    made.feed(request(b"x" * 60))
    made.feed(request(b"y" * 60))
    assert isinstance(made.ready[1], RejectedRequest)
    made.close()
    assert memory.used == 0


@cases("digits", [b"5x", b"", b"+5", b"-5", b"5, 5", b"5\r\ncontent-length: 6", b"\xb2", b"1" * 16])
def test_what_are_no_digits_is_left_to_the_parser(digits: bytes) -> None:
    assert known().match(HEAD % digits + b"hello") is None


def test_any_other_byte_makes_it_another_head() -> None:
    text = HEAD % b"5"
    for place in range(len(text)):
        if not text[place : place + 1].isdigit():
            assert known().match(text[:place] + b"!" + text[place + 1 :]) is None
        assert known().match(text[:place]) is None


def test_only_whole_short_heads_that_announce_a_length_and_ask_for_nothing_are_remembered() -> None:
    plain, text = Head("POST", "/", {}), HEAD % b"5"
    assert remember(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", plain, chunked=True) is None
    assert remember(text, Head("POST", "/", {b"expect": b"100-continue"}), chunked=True) is None
    assert remember(text, Head("POST", "/", {}, upgrade=True), chunked=True) is None
    assert text_of(text + b"hello") == text
    assert text_of(text[:-1]) == b""
    assert text_of(b"\r\n" + text) == b""
    assert text_of(b"POST / HTTP/1.1\r\nx: " + b"y" * MAX_BYTES + b"\r\n\r\n") == b""
