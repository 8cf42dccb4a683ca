"""How attacks write HTTP, JSON and WebSocket frames: by hand, since a client library would not write what is wrong."""

import json
import struct
from typing import Any

from benchmarks.attacks.case import Key, Model, Parts, length, parts

CHAT, COMPLETIONS, EMBEDDINGS = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
SCORE, RERANK = "/v1/score", "/v1/rerank"
MB = 1 << 20
BODY = 8 * MB
"""The longest body that is taken."""
_ACCEPTED = {Key.NONE: "", Key.WRONG: "authorization: Bearer $WRONG\r\n"}
_HANDSHAKE = (
    "upgrade: websocket", "connection: Upgrade", "sec-websocket-version: 13",
    "sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==",
)  # fmt: skip


def head(method: str, path: str, *fields: str, key: Key = Key.GUEST, end: bool = True) -> str:
    """A head; without its `end` more fields may follow."""
    key_line = _ACCEPTED.get(key, f"authorization: Bearer ${key.name}\r\n")
    lines = "".join(f"{field}\r\n" for field in fields)
    return f"{method} {path} HTTP/1.1\r\nhost: x\r\n{key_line}{lines}" + ("\r\n" if end else "")


def get(path: str, *fields: str, key: Key = Key.GUEST) -> Parts:
    """A request without a body."""
    return parts(head("GET", path, *fields, key=key))


def post(path: str, body: Parts, *fields: str, key: Key = Key.GUEST, announced: int | None = None) -> Parts:
    """A request with a body, whose length may be announced wrongly."""
    size = length(body) if announced is None else announced
    return parts(head("POST", path, f"content-length: {size}", *fields, key=key), body)


def chunked(path: str, chunks: Parts, *fields: str, key: Key = Key.GUEST, method: str = "POST") -> Parts:
    """A request whose body is chunked; `chunks` are written with their sizes."""
    return parts(head(method, path, "transfer-encoding: chunked", *fields, key=key), chunks)


def chunk(data: str, extension: str = "") -> str:
    """One chunk."""
    return f"{len(data.encode()):x}{extension}\r\n{data}\r\n"


def chat(*more: str | tuple[str, int] | Parts, model: Model = Model.EMULATED, text: str = "Hi") -> Parts:
    """A chat's body; `more` is JSON that stands behind its own fields, without the comma before it."""
    behind = parts(", ", *more) if more else ()
    asked = f'{{"model": "{model}", "max_tokens": 4, "messages": [{{"role": "user", "content": {json.dumps(text)}}}]'
    return parts(asked, behind, "}")


def fields(model: Model = Model.EMULATED, **given: Any) -> Parts:
    """A chat's body with these fields."""
    return chat(*([json.dumps(given)[1:-1]] if given else []), model=model)


def schema(given: Any, model: Model = Model.REAL) -> Parts:
    """A chat that is to fit a schema; its title differs each time, so that no cache answers."""
    whole = {"title": "$NUMBER", **given} if isinstance(given, dict) else given
    wanted = {"type": "json_schema", "json_schema": {"name": "a", "schema": whole}}
    return fields(model, response_format=wanted)


def schema_text(*text: str | tuple[str, int] | Parts, model: Model = Model.REAL) -> Parts:
    """The same for a schema written by hand; `text` is what stands between its braces."""
    begin = '"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"title": "$NUMBER", '
    return chat(begin, *text, "}}}", model=model)


def handshake(path: str = CHAT, *more: str, key: Key = Key.GUEST) -> str:
    """A WebSocket's."""
    return head("GET", path, *_HANDSHAKE, *more, key=key)


def frame(data: bytes, opcode: int = 1, *, fin: bool = True, masked: bool = True, bits: int = 0) -> bytes:
    """A frame; its mask is of zeros, so the data stand as they are."""
    return frame_head(len(data), opcode, fin=fin, masked=masked, bits=bits) + data


def frame_head(size: int, opcode: int = 1, *, fin: bool = True, masked: bool = True, bits: int = 0) -> bytes:
    """What stands before a frame's data, with the mask."""
    first, mask = (fin << 7) | bits | opcode, masked << 7
    if size < 126:
        lead = struct.pack("!BB", first, mask | size)
    elif size < 1 << 16:
        lead = struct.pack("!BBH", first, mask | 126, size)
    else:
        lead = struct.pack("!BBQ", first, mask | 127, size)
    return lead + (bytes(4) if masked else b"")
