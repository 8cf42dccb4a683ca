"""WebSocket: frames that are small, many, long, wrong or slow."""

from collections.abc import Iterator

from benchmarks.attacks.case import Case, Key, Kind, Parts, Reads, parts
from benchmarks.attacks.wire import BODY, CHAT, COMPLETIONS, MB, fields, frame, frame_head, handshake, head

TEXT, BINARY, MORE, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
_OPENED = handshake()
_BEGUN = parts(_OPENED, frame(b"{", TEXT, fin=False))


def kinds() -> Iterator[Kind]:
    """All of them."""
    yield Kind("websocket: empty fragments", "a fragment in memory that weighs nothing", tuple(_empty()))
    yield Kind("websocket: fragments of a byte", "a sum over all fragments for each", tuple(_tiny()))
    yield Kind("websocket: pings and pongs", "an answer for each", tuple(_control()))
    yield Kind("websocket: long messages", "memory", tuple(_long()))
    yield Kind("websocket: wrong frames", "the protocol's state", tuple(_wrong()))
    yield Kind("websocket: many messages", "requests that wait", tuple(_many()))
    yield Kind("websocket: handshakes", "connections and hashes", tuple(_handshakes()))
    yield Kind("websocket: slow", "connections", tuple(_slow()))


def _empty() -> Iterator[Case]:
    unit = parts((frame(b"", MORE, fin=False), 8192))
    yield Case("as fast as they go", _BEGUN, unit)
    yield Case("2 MB a second", _BEGUN, unit, rate=2 * MB)
    yield Case("16 connections", _BEGUN, unit, connections=16)
    yield Case("whole empty messages", parts(_OPENED), parts((frame(b""), 4096)))
    yield Case("nothing left", parts(handshake(key=Key.ZERO), frame(b"{", TEXT, fin=False)), unit, key=Key.ZERO)


def _tiny() -> Iterator[Case]:
    for size in (1, 2, 64):
        yield Case(f"of {size}", _BEGUN, parts((frame(b"a" * size, MORE, fin=False), 8192)))
    yield Case("of 1, 1 MB a second", _BEGUN, parts((frame(b"a", MORE, fin=False), 1024)), rate=MB)
    yield Case("a write each", _BEGUN, parts((frame(b"a", MORE, fin=False), 64)), piece=7, connections=8)


def _control() -> Iterator[Case]:
    for name, opcode in {"pings": PING, "pongs": PONG}.items():
        for size in (0, 125):
            yield Case(f"{name} of {size}", parts(_OPENED), parts((frame(b"p" * size, opcode), 2048)))
    yield Case("pings unread", parts(_OPENED), parts((frame(b"p" * 125, PING), 2048)), reads=Reads.NOTHING)
    yield Case("pings, 2 MB a second", parts(_OPENED), parts((frame(b"", PING), 1024)), rate=2 * MB)
    yield Case("pings between fragments", _BEGUN, parts((frame(b"", PING) + frame(b"a", MORE, fin=False), 2048)))


def _long() -> Iterator[Case]:
    yield Case("8 MB of brackets", parts(_OPENED, frame_head(BODY), ("[", BODY)))
    yield Case("9 MB", parts(_OPENED, frame_head(9 * MB), ("a", 9 * MB)))
    yield Case("2^63 announced", parts(_OPENED, frame_head((1 << 63) - 1)), parts(("a", 65536)))
    yield Case(
        "100 held at 2 MB",
        parts(_OPENED, frame_head(BODY), ("a", 2 * MB)),
        connections=100,
        again=False,
        limit=256 * MB,
    )
    piece = parts(frame_head(MB, MORE, fin=False), ("a", MB))
    yield Case("fragments of 1 MB", _BEGUN, piece)


def _wrong() -> Iterator[Case]:
    wrong: dict[str, bytes] = {
        "without a mask": frame(b"{}", masked=False),
        "reserved bits": frame(b"{}", bits=0x40),
        "a reserved opcode": frame(b"{}", 5),
        "a control frame in pieces": frame(b"a", PING, fin=False),
        "a ping of 126": frame(b"a" * 126, PING),
        "a message in a message": frame(b"{", fin=False) + frame(b"{"),
        "a piece of nothing": frame(b"a", MORE),
        "not UTF-8": frame(b"\xff\xfe"),
        "close codes": frame(b"\x00\x01", CLOSE) * 100,
        "a close and then more": frame(b"", CLOSE) + frame(b"{}") * 1000,
    }
    for name, frames in wrong.items():
        yield Case(name, parts(_OPENED, frames), connections=8)


def _asked(model_fields: Parts) -> bytes:
    return frame(b"".join(text * count for text, count in model_fields))


def _many() -> Iterator[Case]:
    chat = _asked(fields(stream=True, max_tokens=8))
    yield Case("two, then more", parts(_OPENED, (chat, 50)), connections=16)
    yield Case("of {}", parts(_OPENED), parts((frame(b"{}"), 1024)), connections=8)
    yield Case("binary", parts(_OPENED, (frame(b"\x00" * 1000, BINARY), 100)))
    yield Case(
        "streams unread",
        parts(_OPENED, _asked(fields(stream=True, max_tokens=4000))),
        connections=32,
        reads=Reads.NOTHING,
        again=False,
    )


def _handshakes() -> Iterator[Case]:
    for key in (Key.NONE, Key.WRONG, Key.ZERO, Key.GUEST):
        yield Case(f"key {key}", parts(handshake(key=key)), key=key, connections=64, reads=Reads.FIRST)
    short = head("GET", CHAT, "upgrade: websocket", "connection: upgrade", "sec-websocket-version: 8")
    yield Case("an old version", parts(short), connections=16)
    yield Case("another site's", parts(handshake(CHAT, "origin: https://evil.example")), connections=16)
    yield Case("another path", parts(handshake("/health")), connections=16)
    yield Case("1,000 held", parts(handshake(COMPLETIONS)), connections=1000, again=False)
    yield Case("with extensions", parts(handshake(CHAT, "sec-websocket-extensions: " + "permessage-deflate, " * 1000)))


def _slow() -> Iterator[Case]:
    begun = parts(_OPENED, frame_head(MB))
    yield Case("300 by the byte", begun, parts("a"), connections=300, rate=3000, piece=1)
    yield Case("300 half a head", parts(_OPENED, b"\x81"), connections=300, again=False)
