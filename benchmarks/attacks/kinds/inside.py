"""The worker's port and the gateway's admin port, as whoever reaches them without a right would use them."""

import json
from collections.abc import Iterator

from benchmarks.attacks.case import Case, Key, Kind, Model, Parts, Port, Reads, parts
from benchmarks.attacks.wire import (
    BODY,
    CHAT,
    COMPLETIONS,
    MB,
    chat,
    chunk,
    fields,
    frame,
    handshake,
    head,
    post,
    schema,
)

WORKER, ADMIN, NONE = Port.WORKER, Port.ADMIN, Key.NONE
_LOAD = "/internal/load"


def kinds() -> Iterator[Kind]:
    """All of them."""
    yield Kind("worker: bodies", "depth and size without a gateway before it", tuple(_bodies()))
    yield Kind("worker: HTTP", "heads, chunks, connections", tuple(_http()))
    yield Kind("worker: WebSocket", "frames", tuple(_sockets()))
    yield Kind("worker: tokens", "tokens of gateways that are none", tuple(_tokens()))
    yield Kind("worker: internal routes", "what only a gateway may ask", tuple(_internal()))
    yield Kind("admin: bodies and heads", "a port that only the cluster reaches", tuple(_admin()))
    yield Kind("admin: reports", "pages and metrics", tuple(_reports()))


def _at_worker(name: str, opening: Parts, repeated: Parts = (), connections: int = 4, **more: object) -> Case:
    return Case(name, opening, repeated, WORKER, NONE, connections=connections, **more)  # type: ignore[arg-type]


def _bodies() -> Iterator[Case]:
    half = BODY // 2 - MB
    for name, begin, end in (("arrays", "[", "]"), ("objects", '{"a":', "}")):
        body = chat('"metadata": ', (begin, half // len(begin)), "1", (end, half // len(begin)))
        yield _at_worker(f"8 MB of {name}", post(CHAT, body, key=NONE))
    yield _at_worker("8 MB of []", post(CHAT, chat('"metadata": [', ("[],", 2 * half // 3), "1]"), key=NONE))
    messages = parts('{"model": "chat", "messages": [', ('{"role": "user", "content": "a"},', 200_000), "1]}")
    yield _at_worker("200,000 messages", post(CHAT, messages, key=NONE))
    yield _at_worker("9 MB", post(CHAT, parts(("a", 9 * MB)), key=NONE))
    bomb = schema({"type": "integer", "multipleOf": 4_999_999}, Model.REAL)
    yield _at_worker("a grammar", post(CHAT, bomb, key=NONE), model=Model.REAL)
    prompt = parts('{"model": "chat", "max_tokens": 1, "prompt": "', ("a", 4 * MB), '"}')
    yield _at_worker("a text of 4 MB", post(COMPLETIONS, prompt, key=NONE))


def _http() -> Iterator[Case]:
    begun = parts(head("POST", CHAT, "transfer-encoding: chunked", key=NONE))
    for size in (1, 16):
        yield _at_worker(f"chunks of {size}", begun, parts((chunk("a" * size), 4096)))
    yield _at_worker("extensions", begun, parts((chunk("a", ";" + "x" * 4096), 16)))
    yield _at_worker(
        "headers without end", parts(head("GET", "/health", key=NONE, end=False)), parts(("a: b\r\n", 4096))
    )
    held = post(CHAT, parts(("a", MB)), key=NONE, announced=BODY)
    yield _at_worker("100 held open", held, connections=100, again=False)
    yield _at_worker("500 idle", (), connections=500, again=False)
    yield _at_worker("a pipeline", (), parts((head("GET", "/v1/models", key=NONE), 100)))
    yield _at_worker("bytes", parts(bytes(range(256)) * 256))
    yield _at_worker(
        "bodies on /health", parts(head("GET", "/health", f"content-length: {BODY}", key=NONE), ("a", BODY))
    )
    yield _at_worker("slow heads", parts("GET /"), parts("x"), connections=200, rate=2000, piece=1)


def _sockets() -> Iterator[Case]:
    opened = handshake(key=NONE)
    begun = parts(opened, frame(b"{", fin=False))
    yield _at_worker("empty fragments", begun, parts((frame(b"", 0, fin=False), 8192)))
    yield _at_worker("fragments of 1", begun, parts((frame(b"a", 0, fin=False), 8192)))
    yield _at_worker("pings", parts(opened), parts((frame(b"p" * 125, 9), 2048)))
    yield _at_worker("messages", parts(opened), parts((frame(b"{}"), 1024)))
    yield _at_worker("handshakes", parts(opened), connections=64, reads=Reads.FIRST)


def _tokens() -> Iterator[Case]:
    asked = fields()
    for name, token in {
        "a million brackets": "W1tb" * 12_000,
        "two points": "a.b.c",
        "not base64": "%%%.%%%",
        "no JSON": "eA.eA",
        "wrong signature": "$UNSIGNED",
        "expires at Infinity": "$FOREVER",
        "expires at 10^400": "$HUGE",
        "expires never": "$NAN",
        "for another service": "$ELSEWHERE",
    }.items():
        yield _at_worker(name, post(CHAT, asked, f"x-paceline-internal-token: {token}", key=NONE), connections=8)


def _internal() -> Iterator[Case]:
    yield _at_worker("load reports", parts(head("GET", _LOAD, key=NONE)), connections=32)
    evacuate = parts('{"v": 1, "requests": [', ('"a",', 400_000), '"b"]}')
    yield _at_worker("evacuate all", post("/internal/evacuate", evacuate, key=NONE))
    yield _at_worker("a resume", post(CHAT, fields(stream=True), "x-paceline-resume: 20", key=NONE))
    yield _at_worker("metrics", parts(head("GET", "/metrics", key=NONE)), connections=8)
    yield _at_worker("readyz", parts(head("GET", "/readyz", key=NONE)), connections=16)


def _to_admin(name: str, opening: Parts, repeated: Parts = (), connections: int = 4, *, again: bool = True) -> Case:
    return Case(name, opening, repeated, ADMIN, NONE, connections=connections, again=again)


def _admin() -> Iterator[Case]:
    level = "/v1/log-level"
    yield _to_admin("8 MB of brackets", parts(head("PUT", level, f"content-length: {BODY}", key=NONE), ("[", BODY)))
    yield _to_admin("a level", parts(head("PUT", level, "content-length: 18", key=NONE), '{"level": "debug"}'))
    chunks = parts(head("PUT", level, "transfer-encoding: chunked", key=NONE))
    yield _to_admin("chunks of 1", chunks, parts((chunk("a"), 4096)))
    drain = parts(head("POST", "/v1/drain", "content-length: 0", "x-paceline-internal-token: $FOREVER", key=NONE))
    yield _to_admin("drain with a forged token", drain)
    yield _to_admin(
        "headers without end", parts(head("GET", "/healthz", key=NONE, end=False)), parts(("a: b\r\n", 4096))
    )
    yield _to_admin("300 idle", (), connections=300, again=False)
    yield _to_admin("bytes", parts(bytes(range(256)) * 256))


def _reports() -> Iterator[Case]:
    for path in ("/metrics", "/v1/tenants", "/v1/queues?limit=200", "/v1/openapi.json"):
        yield _to_admin(path, parts(head("GET", path, key=NONE)), connections=4)
    odd = "/v1/tenants?limit=" + json.dumps("9" * 20_000)[1:-1]
    yield _to_admin("a limit of 20,000 digits", parts(head("GET", odd, key=NONE)))
