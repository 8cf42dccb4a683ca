"""Which upgrades are the handshake of a WebSocket (RFC 6455, 4.2.1)."""

import base64
import binascii

from paceline_gateway.http.message import Headers


def is_foreign(headers: Headers) -> bool:
    """Whether a page of another site asks: browsers let any page connect, and say only here whose it is."""
    origin = headers.get(b"origin", b"")
    return origin != b"" and origin.partition(b"://")[2] != headers.get(b"host", b"")


def is_handshake(method: str, headers: Headers) -> bool:
    """Whether a request that asks for an upgrade asks for this one, and in order."""
    try:
        key = base64.b64decode(headers.get(b"sec-websocket-key", b""), validate=True)
    except binascii.Error:
        return False
    asks = headers.get(b"upgrade", b"").lower() == b"websocket" and headers.get(b"sec-websocket-version") == b"13"
    bodiless = not {b"content-length", b"transfer-encoding"} & headers.keys()
    return method == "GET" and asks and bodiless and len(key) == 16
