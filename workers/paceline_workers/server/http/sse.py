"""Server-sent events as bytes. A comment line stands right before its events, and travels in one write with them."""

import msgspec

from paceline_core.wire import MOVED
from paceline_workers.server.text.output import Piece

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}
DONE = b"data: [DONE]\n\n"


def event(payload: bytes) -> bytes:
    """One event; `payload` holds no newline, as JSON from an encoder does not."""
    return b"data: " + payload + b"\n\n"


def payloads(data: bytes) -> list[bytes]:
    """What the events of one write hold, comments left out."""
    return [line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith(b"data: ")]


def position(piece: Piece, events: int) -> bytes:
    """`: p <position> <ids>`: which output tokens the next events bring, for a gateway that may have to resume here.

    How many events that are is told where it is not one, and `end` where the finish reason is among them.
    """
    return b": p " + _place(piece, events)


def choice_position(choice: int, piece: Piece, events: int) -> bytes:
    """`: c <choice> <position> <ids>`: the same, where a request has several choices."""
    return f": c {choice} ".encode() + _place(piece, events)


def _place(piece: Piece, events: int) -> bytes:
    ids = ",".join(map(str, piece.ids)) or "-"
    if piece.finish:
        return f"{piece.position} {ids} {events} end\n".encode()
    return f"{piece.position} {ids}\n".encode() if events == 1 else f"{piece.position} {ids} {events}\n".encode()


def prompt(tokens: int, cached: int) -> bytes:
    """`: prompt <tokens> <cached>`: the request's prompt, before its first event, so that who cuts it short pays it."""
    return b": prompt %d %d\n" % (tokens, cached)


def moved(reason: str) -> bytes:
    """`: moved <reason>`: the last line of a stream that whoever resumes it shall have from another worker."""
    return f"{MOVED}{reason}\n".encode()


def comment(name: str, content: object) -> bytes:
    """`: <name> <content as JSON>`, for whoever is trusted to read and strip it."""
    return f": {name} ".encode() + msgspec.json.encode(content) + b"\n"
