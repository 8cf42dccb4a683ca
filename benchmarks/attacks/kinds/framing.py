"""HTTP itself: bodies where none belongs, small pieces, slow and many connections, heads, and what is no HTTP."""

from collections.abc import Iterator

from benchmarks.attacks.case import Case, Key, Kind, Parts, Reads, parts
from benchmarks.attacks.wire import BODY, CHAT, MB, chat, chunk, chunked, fields, get, head, post

NONE, WRONG, ZERO = Key.NONE, Key.WRONG, Key.ZERO
HEALTH, MODELS = "/health", "/v1/models"
_END = "0\r\n\r\n"
_ODD_LINE = 31 << 10
"""A head of about the longest that is taken."""


def kinds() -> Iterator[Kind]:
    """All of them."""
    yield Kind("http: bodies on routes without one", "memory for bodies that nobody reads", tuple(_bodiless()))
    yield Kind("http: bodies without a key", "memory for bodies of nobody", tuple(_keyless()))
    yield Kind("http: small chunks", "an object in memory for each chunk", tuple(_chunks()))
    yield Kind("http: chunk extensions", "bytes that belong to no body", tuple(_extensions()))
    yield Kind("http: trailers", "headers behind the body", tuple(_trailers()))
    yield Kind("http: slow heads", "connections", tuple(_slow_heads()))
    yield Kind("http: slow bodies", "connections and memory", tuple(_slow_bodies()))
    yield Kind("http: slow readers", "answers that nobody reads", tuple(_readers()))
    yield Kind("http: idle connections", "connections", tuple(_idle()))
    yield Kind("http: bursts of connects", "the listen queue", tuple(_bursts()))
    yield Kind("http: pipelines", "answers in order", tuple(_pipelines()))
    yield Kind("http: many headers", "tables of headers", tuple(_headers()))
    yield Kind("http: long paths", "paths in logs and answers", tuple(_paths()))
    yield Kind("http: request ids", "names in logs and answers", tuple(_ids()))
    yield Kind("http: expect", "interim answers", tuple(_expects()))
    yield Kind("http: codings", "bodies that grow when they are read", tuple(_codings()))
    yield Kind("http: other protocols", "parsers", tuple(_foreign()))
    yield Kind("http: two readings", "a request inside another", tuple(_smuggled()))
    yield Kind("http: wrong keys", "hashes and log lines", tuple(_keys()))
    yield Kind("http: headers of gateways", "belief in what strangers say", tuple(_forged()))


def _bodiless() -> Iterator[Case]:
    for method, path in (("GET", HEALTH), ("HEAD", HEALTH), ("GET", MODELS), ("POST", "/nowhere")):
        whole = parts(head(method, path, f"content-length: {BODY}", key=NONE), ("a", BODY))
        yield Case(f"8 MB at {method} {path}", whole, key=NONE)
    held = parts(head("GET", HEALTH, f"content-length: {BODY}", key=NONE), ("a", MB))
    yield Case("257 held open", held, key=NONE, connections=257, limit=300 * MB, again=False)
    pairs = chunked(HEALTH, (), key=NONE, method="GET")
    yield Case("chunks of 2", pairs, parts((chunk("aa"), 4096)), key=NONE, connections=9)
    yield Case("chunks of 2 with a key", chunked(MODELS, (), method="GET"), parts((chunk("aa"), 4096)), connections=9)


def _keyless() -> Iterator[Case]:
    body = chat('"metadata": "', ("a", BODY - MB), '"')
    for key in (NONE, WRONG):
        yield Case(f"7 MB, key {key}", post(CHAT, body, key=key), key=key)
        yield Case(f"chunks of 2, key {key}", chunked(CHAT, (), key=key), parts((chunk("aa"), 4096)), key=key)
    held = post(CHAT, parts(("a", MB)), key=NONE, announced=BODY)
    yield Case("200 held open", held, key=NONE, connections=200, limit=256 * MB, again=False)
    yield Case("announced and never sent", post(CHAT, (), key=NONE, announced=BODY), key=NONE, connections=300)


def _chunks() -> Iterator[Case]:
    for size in (1, 2, 16, 512):
        yield Case(f"of {size}", chunked(CHAT, ()), parts((chunk("a" * size), 65536 // (size + 5))))
    yield Case("of 2, nothing left", chunked(CHAT, (), key=ZERO), parts((chunk("aa"), 4096)), key=ZERO, connections=9)
    yield Case("a write each", chunked(CHAT, ()), parts((chunk("a"), 64)), piece=6, connections=8)
    many = chunked(CHAT, parts((chunk("a"), 400_000), _END))
    yield Case("400,000 that end", many)


def _extensions() -> Iterator[Case]:
    for size in (10, 4096, 60_000):
        yield Case(f"{size} bytes each", chunked(CHAT, ()), parts((chunk("a", ";" + "x" * size), 1 + 65536 // size)))
    yield Case("one without end", chunked(CHAT, parts("1;")), parts(("x", 65536)))
    yield Case("size of 60,000 digits", chunked(CHAT, parts(("0", 60_000), "1\r\na\r\n")))


def _trailers() -> Iterator[Case]:
    yield Case("10^5", chunked(CHAT, parts("0\r\n", ("a: b\r\n", 100_000), "\r\n")))
    yield Case("one without end", chunked(CHAT, parts("0\r\na: ")), parts(("x", 65536)))
    forged = "0\r\nauthorization: Bearer x\r\ncontent-length: 10\r\nx-paceline-tenant: b\r\n\r\n"
    yield Case("that forge", chunked(CHAT, parts(chunk("{}"), forged)))


def _slow_heads() -> Iterator[Case]:
    begin = parts(head("GET", HEALTH, key=NONE, end=False))
    yield Case("500 by the byte", begin, parts("x"), key=NONE, connections=500, rate=2000, piece=1)
    yield Case("200 by the header", begin, parts("a: b\r\n"), key=NONE, connections=200, rate=6000, piece=6)
    yield Case("32 as fast as bytes go", begin, parts("a: b\r\n"), key=NONE, connections=32, piece=1)


def _slow_bodies() -> Iterator[Case]:
    begin = post(CHAT, (), announced=BODY)
    yield Case("300 by the byte", begin, parts("a"), connections=300, rate=3000, piece=1)
    yield Case("32 as fast as bytes go", begin, parts("a"), connections=32, piece=1)
    yield Case(
        "64 that hold 4 MB",
        post(CHAT, parts(("a", 4 * MB)), announced=BODY),
        connections=64,
        again=False,
        limit=300 * MB,
    )
    keyless = post(CHAT, (), key=NONE, announced=BODY)
    yield Case("300 without a key", keyless, parts("a"), key=NONE, connections=300, rate=3000, piece=1)


def _readers() -> Iterator[Case]:
    stream = post(CHAT, fields(stream=True, max_tokens=4000))
    yield Case("32 streams unread", stream, connections=32, reads=Reads.NOTHING, again=False)
    many = post(CHAT, fields(stream=True, max_tokens=2000, n=8, logprobs=True, top_logprobs=20))
    yield Case("streams of 8 answers unread", many, connections=8, reads=Reads.NOTHING, again=False)
    flood = parts((head("GET", MODELS), 200))
    yield Case("models asked for and unread", flood, flood, connections=8, reads=Reads.NOTHING)
    refused = parts((head("GET", "/nowhere", key=NONE), 200))
    yield Case("refusals unread", refused, refused, key=NONE, connections=8, reads=Reads.NOTHING)


def _idle() -> Iterator[Case]:
    for count in (500, 2000):
        yield Case(f"{count:,} that say nothing", (), key=NONE, connections=count, again=False)
    yield Case("500 in the middle of a head", parts("GET /hea"), key=NONE, connections=500, again=False)
    yield Case("500 that have asked", get(HEALTH, key=NONE), key=NONE, connections=500, again=False)


def _bursts() -> Iterator[Case]:
    for count in (400, 1000):
        asked = get(HEALTH, "connection: close", key=NONE)
        yield Case(f"{count:,} at once, again and again", asked, key=NONE, connections=count)
    yield Case("opened and reset", get(HEALTH, key=NONE), key=NONE, connections=200, reads=Reads.FIRST)


def _pipelines() -> Iterator[Case]:
    for count in (16, 17, 1000):
        yield Case(f"{count} of health", parts((head("GET", HEALTH, key=NONE), count)), key=NONE)
    yield Case("without end", (), parts((head("GET", MODELS), 100)))
    yield Case("chats", parts(*[post(CHAT, fields())] * 16))
    yield Case("of small bodies", (), parts((head("POST", CHAT, "content-length: 2") + "{}", 100)))


def _headers() -> Iterator[Case]:
    def lines(text: str, count: int) -> Parts:
        return parts(head("GET", HEALTH, key=NONE, end=False), (text, count), "\r\n")

    yield Case("700 short", lines("a: b\r\n", 700), key=NONE)
    yield Case("10,000 short", lines("a: b\r\n", 10_000), key=NONE)
    yield Case("one of 31 KB", lines(f"a: {'x' * _ODD_LINE}\r\n", 1), key=NONE)
    yield Case("one of 1 MB", lines(f"a: {'x' * MB}\r\n", 1), key=NONE)
    yield Case("without end", lines("a: b\r\n", 1)[:1], parts(("ab: cd\r\n", 8192)), key=NONE)
    yield Case("700 different", parts(head("GET", HEALTH, *(f"h{n}: {n}" for n in range(700)), key=NONE)), key=NONE)


def _paths() -> Iterator[Case]:
    for name, path in {
        "31 KB": "/" + "a" * _ODD_LINE,
        "31 KB of a query": "/health?" + "a=b&" * (_ODD_LINE // 4),
        "a model of 31 KB": "/v1/models/" + "m" * _ODD_LINE,
        "dots": "/v1" + "/.." * 8000,
        "per cent": "/%2e%2e" * 4000,
        "absolute": "http://x" + "/y" * 12_000,
    }.items():
        yield Case(name, get(path, key=NONE), key=NONE, connections=8)
    yield Case("a model of 31 KB with a key", get("/v1/models/" + "m" * (_ODD_LINE - 200)), connections=8)


def _ids() -> Iterator[Case]:
    for name, value in {"30 KB": "a" * 30_000, "not letters": "\x01\x02\xff\xe9", "quotes": '","level":"error'}.items():
        yield Case(name, get(HEALTH, f"x-request-id: {value}", key=NONE), key=NONE, connections=8)
    yield Case("the same for all", post(CHAT, fields(), "x-request-id: same"), connections=16)
    yield Case("a trace of 30 KB", post(CHAT, fields(), f"traceparent: {'0' * 30_000}"), connections=8)


def _expects() -> Iterator[Case]:
    announced = post(CHAT, (), "expect: 100-continue", announced=BODY)
    yield Case("and no body", announced, connections=100)
    yield Case(
        "without a key", post(CHAT, (), "expect: 100-continue", key=NONE, announced=BODY), key=NONE, connections=100
    )
    yield Case("something else", post(CHAT, fields(), "expect: tea"))
    yield Case("on health", parts((head("GET", HEALTH, "expect: 100-continue", key=NONE), 16)), key=NONE)


def _codings() -> Iterator[Case]:
    for coding in ("gzip", "br", "deflate, gzip"):
        yield Case(coding, post(CHAT, parts((b"\x1f\x8b\x08\x00", MB)), f"content-encoding: {coding}"))
    yield Case("gzip as transfer", parts(head("POST", CHAT, "transfer-encoding: gzip, chunked"), chunk("aa"), _END))
    yield Case("accepts everything", post(CHAT, fields(), "accept-encoding: " + "gzip;q=0.5, " * 2000))


def _foreign() -> Iterator[Case]:
    hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(600)
    for name, said in {
        "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(9),
        "TLS": hello,
        "SSH": b"SSH-2.0-OpenSSH_9.6\r\n",
        "zeros": bytes(MB),
        "line feeds": b"\r\n" * MB,
        "bytes": bytes(range(256)) * 1024,
        "HTTP/0.9": b"GET /health\r\n",
        "a method of 1 MB": b"A" * MB + b" / HTTP/1.1\r\n\r\n",
        "CONNECT": b"CONNECT x:443 HTTP/1.1\r\nhost: x\r\n\r\n",
    }.items():
        yield Case(name, parts(said), key=NONE, connections=16)


def _smuggled() -> Iterator[Case]:
    inner = "GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    both = head("POST", CHAT, f"content-length: {len(inner) + 5}", "transfer-encoding: chunked") + _END + inner
    two = head("POST", CHAT, "content-length: 0", f"content-length: {len(inner)}") + inner
    for name, text in {
        "length and chunks": both,
        "two lengths": two,
        "two codings": head("POST", CHAT, "transfer-encoding: chunked", "transfer-encoding: identity") + _END + inner,
        "a coding with a blank": head("POST", CHAT, "transfer-encoding : chunked") + _END + inner,
        "a tab for a coding": head("POST", CHAT, "transfer-encoding:\tchunked\t,\tidentity") + _END + inner,
        "bare line feeds": f"POST {CHAT} HTTP/1.1\nhost: x\ncontent-length: 0\n\n" + inner,
        "a folded header": head("POST", CHAT, "a: b\r\n transfer-encoding: chunked") + _END + inner,
        "a chunk of 2^64 and one": head("POST", CHAT, "transfer-encoding: chunked") + "10000000000000001\r\na" + inner,
        "a length with a sign": head("POST", CHAT, "content-length: +5") + "hello" + inner,
        "two hosts": head("GET", HEALTH, "host: y") + inner,
    }.items():
        yield Case(name, parts(text), connections=16)


def _keys() -> Iterator[Case]:
    body = fields()
    for name, value in {
        "one that nobody has": "Bearer $WRONG",
        "30 KB": "Bearer " + "a" * 30_000,
        "no Bearer": "Basic dXNlcjpwYXNz",
        "not ASCII": "Bearer pl-\xe9\xff",
        "a number each": "Bearer pl-$NUMBER",
    }.items():
        yield Case(name, post(CHAT, body, f"authorization: {value}", key=NONE), key=WRONG, connections=32)
    closed = post(CHAT, body, "authorization: Bearer $WRONG", "connection: close", key=NONE)
    yield Case("a connection each", closed, key=WRONG, connections=32)


def _forged() -> Iterator[Case]:
    for name, field in {
        "a class that is none": "x-paceline-class: emperor",
        "offline for all": "x-paceline-class: offline",
        "an internal token": "x-paceline-internal-token: e30.e30",
        "a resume": "x-paceline-resume: 99999999",
        "a deadline": "x-paceline-deadline-ms: 1e999",
        "a tenant": "x-paceline-tenant: neighbour",
        "a priority": "priority: u=0, i",
    }.items():
        yield Case(name, post(CHAT, fields(), field), connections=16)
