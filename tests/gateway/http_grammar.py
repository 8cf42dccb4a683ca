"""Makes HTTP/1.1 as clients, careless programs and attackers write it: whole pipelines, broken on purpose or not.

Two ways: `pipelines` puts requests together from parts, each of which may be an odd one; `mutants` takes texts and
cuts, doubles and splices their bytes by a seed. `pieces` cuts a text at any byte borders.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from random import Random

from hypothesis import strategies as st

TARGETS = [
    "/", "/v1/models", "/v1/completions?x=/a", "http://h/v1/models", "http://h?x=/v1/models", "http://h:1/a#b", "*",
    "h:1", "//h/a", "/a b", "/\x7f", "/\xe4", "", "/%2e%2e/x", "a", "/a\tb",
    "ftp://h/v1/models", "http:///x", "://x/y",
]  # fmt: skip
METHODS = ["GET", "POST", "OPTIONS", "get", "P@ST", "PRI", "HEAD", "", "CONNECT", "DELETE"]
VERSIONS = [
    "HTTP/1.1",
    "HTTP/1.0",
    "HTTP/0.9",
    "HTTP/2.0",
    "HTTP/1.2",
    "http/1.1",
    "HTTP/1.10",
    "HTTP/11",
    "",
    "ICE/1.0",
]
LINES = [
    "x-a: 1", "x-a:1", "x-a:\t1 \t", "X-A: ", "x-a : 1", " x-a: 1", "x-a: 1\r\n folded", "x-a", ": 1", "x\x00a: 1",
    "x-a: \x001", "x-a: \x01", "x-a: \xff", "x-\xff: 1", "x(a): 1", "x-a: a\rb", "x-a: a\x0bb", "host: b", "Host: ",
    "x-a: \x7f", "content-length: 0", "content-length: 5", "content-length: 05", "Content-Length: +5",
    "content-length: -5",
    "content-length: 5, 5", "content-length: 5,6", "content-length: ", "content-length: 5 6", "content-length: 0x5",
    "content-length: 18446744073709551621", "content-length: \xb2", "content-length : 5", "content_length: 5",
    "transfer-encoding: chunked", "Transfer-Encoding: Chunked", "transfer-encoding: chunked, identity",
    "transfer-encoding: gzip, chunked", "transfer-encoding: xchunked", "transfer-encoding:\x0bchunked",
    "transfer-encoding: identity", "transfer-encoding: chunked,", "transfer-encoding: ",
    'transfer-encoding: "chunked"', "transfer-encoding: chunked;a=b", "transfer-encoding:\r\n chunked",
    "transfer-encoding : chunked",
    "connection: close", "connection: keep-alive", "connection: upgrade, close", "connection: content-length",
    "connection: Keep-Alive, x", "upgrade: websocket", "upgrade: h2c", "connection: upgrade\r\nupgrade: websocket",
    "expect: 100-continue", "expect: 200-ok", "authorization: Bearer a", "te: trailers", "trailer: x-t",
]  # fmt: skip
SIZES = [
    "0",
    "5",
    "05",
    "0x5",
    "5 ",
    " 5",
    "5;a",
    "5;a=b",
    '5;a="\r\n"',
    "5;\n",
    "5 ;a",
    "FFFFFFFFFFFFFFFFF",
    "-1",
    "",
    "g",
    "5\r",
    "+5",
]
ENDS = ["\r\n", "\r\n", "\r\n", "\r\n", "\n", "\r", "\r\r\n", "\n\r", ""]


def odd(usual: st.SearchStrategy[str], odds: Sequence[str]) -> st.SearchStrategy[str]:
    """Mostly the usual."""
    return st.integers(0, 4).flatmap(lambda pick: usual if pick else st.sampled_from(odds))


CRLF = odd(st.just("\r\n"), ENDS)
DATA = st.sampled_from(["hello", "he", "hello!", "", "GET / HTTP/1.1\r\nhost: a\r\n\r\n", "0\r\n\r\n"])


@st.composite
def chunks(draw: st.DrawFn) -> str:
    """A chunked body."""
    text = ""
    for _ in range(draw(st.integers(0, 2))):
        text += (
            draw(odd(st.just("5"), SIZES))
            + draw(CRLF)
            + draw(odd(st.just("hello"), ["hell", "hello!", ""]))
            + draw(CRLF)
        )
    last = draw(odd(st.just("0"), ["00", "0;x", "", "0 ", "-0", "0x0"])) + draw(CRLF)
    trailers = "".join(line + draw(CRLF) for line in draw(st.lists(st.sampled_from(LINES), max_size=1)))
    return text + last + trailers + draw(CRLF)


@st.composite
def single(draw: st.DrawFn) -> str:
    """One request."""
    method, version = draw(odd(st.just("POST"), METHODS)), draw(odd(st.just("HTTP/1.1"), VERSIONS))
    blank = draw(odd(st.just(" "), ["  ", "\t", "", "\x0b"]))
    lines = ["host: a", *draw(st.lists(st.sampled_from(LINES), max_size=2))]
    framing = draw(st.sampled_from(["none", "length", "chunked", "both"]))
    if framing in ("length", "both"):
        lines.append("content-length: 5")
    if framing in ("chunked", "both"):
        lines.append("transfer-encoding: chunked")
    if draw(st.integers(0, 9)) == 0:
        lines.append("x-long: " + "y" * draw(st.sampled_from([3000, 9000])))
    lines = list(draw(st.permutations(lines)))
    body = {"none": st.just(""), "length": odd(st.just("hello"), ["hell", "hello!", ""])}.get(framing, chunks())
    first = method + blank + draw(odd(st.just("/v1/completions"), TARGETS)) + blank + version + draw(CRLF)
    return (
        first
        + "".join(line + draw(CRLF) for line in lines)
        + draw(CRLF)
        + draw(odd(body, ["hello", "5\r\nhello\r\n0\r\n\r\n"]))
    )


@st.composite
def pipelines(draw: st.DrawFn) -> bytes:
    """A connection's bytes: up to three requests, and what may stand around them."""
    before = draw(odd(st.just(""), ["\r\n", "\n", "\r", " ", "\x00"]))
    return (before + "".join(draw(st.lists(single(), min_size=1, max_size=3)))).encode("latin-1")


def pieces(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    """The text in packets."""
    places = [0, *sorted({cut % (len(data) + 1) for cut in cuts}), len(data)]
    return [data[a:b] for a, b in pairwise(places) if a < b]


def mutants(texts: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """So many damaged texts, the same for the same seed."""
    random = Random(seed)
    tokens = [
        text.encode("latin-1") for text in (*LINES, *SIZES, *ENDS, *TARGETS, *VERSIONS, *METHODS, " ", ",", ":", ";")
    ]
    for _ in range(count):
        data = bytearray(random.choice(texts))
        for _ in range(random.randint(1, 3)):
            _damage(data, random, tokens, texts)
        yield bytes(data) + random.choice(texts)


def _damage(data: bytearray, random: Random, tokens: Sequence[bytes], texts: Sequence[bytes]) -> None:
    at = random.randrange(len(data) + 1)
    end = min(len(data), at + random.choice([1, 1, 2, 8, 30]))
    match random.randrange(5):
        case 0:
            del data[at:end]
        case 1:
            data[at:at] = data[at:end]
        case 2:
            data[at:at] = random.choice(tokens)
        case 3:
            data[at:end] = bytes([random.choice(b"\x00\t\n\r \x0b\x7f\xff,:;0aZ")])
        case _:
            other = random.choice(texts)
            data[at:] = other[random.randrange(len(other)) :]


STATUSES = [
    "200 OK",
    "200",
    "204 No Content",
    "304 Not Modified",
    "100 Continue",
    "101 Switching Protocols",
    "20 x",
    "600 x",
    "099 x",
    "200\tOK",
]


@st.composite
def reply(draw: st.DrawFn) -> str:
    """One response."""
    first = draw(odd(st.just("HTTP/1.1"), VERSIONS)) + " " + draw(odd(st.just("200 OK"), STATUSES)) + draw(CRLF)
    lines = draw(st.lists(st.sampled_from(LINES), max_size=2))
    framing = draw(st.sampled_from(["close", "length", "chunked", "both"]))
    if framing in ("length", "both"):
        lines.append("content-length: 5")
    if framing in ("chunked", "both"):
        lines.append("transfer-encoding: chunked")
    body = {"close": st.just("hello"), "length": odd(st.just("hello"), ["hell", "hello!", ""])}.get(framing, chunks())
    return first + "".join(line + draw(CRLF) for line in lines) + draw(CRLF) + draw(body)


@st.composite
def responses(draw: st.DrawFn) -> bytes:
    """What a worker may send for one request: interim answers, the answer, and too much."""
    before = draw(
        odd(st.just(""), ["HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n", "\r\n"])
    )
    return (before + draw(reply()) + draw(odd(st.just(""), ["x", "HTTP/1.1 200 OK\r\n\r\n"]))).encode("latin-1")
