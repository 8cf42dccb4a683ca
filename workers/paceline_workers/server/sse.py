"""Server-sent events as bytes. A comment line stands right before its event's `data:`, so both travel in one write."""

import msgspec

from paceline_workers.server.output import Piece

HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}
DONE = b"data: [DONE]\n\n"


def event(payload: bytes) -> bytes:
    """One event; `payload` holds no newline, as JSON from an encoder does not."""
    return b"data: " + payload + b"\n\n"


def payloads(data: bytes) -> list[bytes]:
    """What the events of one write hold, comments left out."""
    return [line.removeprefix(b"data: ") for line in data.split(b"\n") if line.startswith(b"data: ")]


def position(piece: Piece) -> bytes:
    """`: p <position> <ids>`: which output tokens this event brings, for a gateway that may have to resume here."""
    return b": p " + _place(piece)


def choice_position(choice: int, piece: Piece) -> bytes:
    """`: c <choice> <position> <ids>`: the same, where a request has several choices."""
    return f": c {choice} ".encode() + _place(piece)


def _place(piece: Piece) -> bytes:
    return f"{piece.position} {','.join(map(str, piece.ids))}\n".encode()


def comment(name: str, content: object) -> bytes:
    """`: <name> <content as JSON>`, for whoever is trusted to read and strip it."""
    return f": {name} ".encode() + msgspec.json.encode(content) + b"\n"
