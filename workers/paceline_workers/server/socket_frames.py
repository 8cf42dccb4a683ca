"""WebSocket frames in a client's bytes, counted before they are parsed, and the limits of a connection.

Parsing a frame costs some 10 us whatever is in it, so bytes alone bound nothing: 1 MB holds 170,000 empty frames. The
headers are walked here (RFC 6455, section 5.2), at most so many frames a call; whoever calls goes on in a later turn of
its loop. What is no valid frame is not judged here: the parser ends the connection at it.
"""

from collections.abc import Callable

FRAGMENTS = 1024
"""Frames of one message."""
CONTROLS = 64
"""Pings, pongs and closes within CONTROLS_S seconds. Clients send one in some seconds."""
CONTROLS_S = 1.0
_LENGTHS = {126: 2, 127: 8}


class FrameCounter:
    """The frames of one connection. `fault`: what a client did that ends it, in words; "" if nothing.

    `message`: bytes of the message that comes, or of the one that came last.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._payload = 0
        self._control = False
        self.message = 0
        self._fragments = 0
        self._controls = 0
        self._since = now()
        self.fault = ""

    def take(self, data: bytes | bytearray, most: int) -> int:
        """Return how many of these bytes hold at most `most` frames, or parts of them. A cut header is left for later.

        The bytes up to there are taken: the next call begins behind them.
        """
        at = min(self._payload, len(data))
        self._payload -= at
        self._grow(at)
        for _ in range(most):
            size, payload = _header(data, at)
            if not size or self._payload:
                return at
            if not self._allowed(data[at]):
                return at
            taken = min(size + payload, len(data) - at)
            self._payload = size + payload - taken
            at += taken
            self._grow(taken)
        return at

    def _grow(self, size: int) -> None:
        self.message += 0 if self._control else size

    def _allowed(self, first: int) -> bool:
        self._control = bool(first & 0x08)
        if self._control:
            self._count_control()
        else:
            if first & 0x0F:
                self._fragments = self.message = 0
            self._fragments += 1
            if self._fragments > FRAGMENTS:
                self.fault = f"a message has at most {FRAGMENTS} fragments"
        return not self.fault

    def _count_control(self) -> None:
        now = self._now()
        if now - self._since >= CONTROLS_S:
            self._since, self._controls = now, 0
        self._controls += 1
        if self._controls > CONTROLS:
            self.fault = f"at most {CONTROLS} pings in {CONTROLS_S:.0f} s are answered"


def _header(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Bytes of a frame's header and of its payload; (0, 0) where the header is cut."""
    if len(data) - at < 2:
        return 0, 0
    masked, length = data[at + 1] & 0x80, data[at + 1] & 0x7F
    more = _LENGTHS.get(length, 0)
    size = 2 + more + (4 if masked else 0)
    if len(data) - at < size:
        return 0, 0
    return size, int.from_bytes(data[at + 2 : at + 2 + more], "big") if more else length
