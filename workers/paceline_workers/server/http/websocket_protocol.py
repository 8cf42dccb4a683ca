"""uvicorn's WebSocket protocol, with bounds on what a client's frames cost: per turn of the loop, message and second.

It parses FRAMES frames a turn. The rest waits and reading pauses meanwhile, while other connections have their turns;
it also waits while the application has not taken a message, so one read cannot queue thousands of them. An incoming
message counts with all bodies of the worker.

Frames are counted before they are parsed: parsing one costs some 10 us whatever its size, so a bound on bytes alone is
not enough, as 1 MB holds 170,000 empty frames. The counter reads the headers (RFC 6455, section 5.2), at most a given
number of frames a call; the caller continues in a later turn of its loop. It does not judge invalid frames: the parser
ends the connection there.
"""

from collections.abc import Callable
from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from paceline_core.errors import RequestError
from paceline_workers.server.http.exchange import BodyMemory, Holding

FRAGMENTS = 1024
"""The most frames of one message."""
CONTROLS = 64
"""The most pings, pongs and closes within CONTROLS_S seconds. Clients send one every few seconds."""
CONTROLS_S = 1.0
_LENGTHS = {126: 2, 127: 8}


class FrameCounter:
    """Counts the frames of one connection. `fault`: why it must end, in words; "" if there is no reason.

    `message`: bytes of the message that is arriving, or of the last one.
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
        """Return how many of these bytes hold at most `most` frames or parts of them. A partial header waits for more.

        Consumes the bytes up to there: the next call must begin after them.
        """
        at = min(self._payload, len(data))
        self._payload -= at
        self.message += 0 if self._control else at
        for _ in range(most):
            size, payload = _header(data, at)
            if not size or self._payload or not self._allowed(data[at]):
                return at
            taken = min(size + payload, len(data) - at)
            self._payload = size + payload - taken
            at += taken
            self.message += 0 if self._control else taken
        return at

    def _allowed(self, first: int) -> bool:
        self._control = bool(first & 0x08)
        if self._control:
            now = self._now()
            if now - self._since >= CONTROLS_S:
                self._since, self._controls = now, 0
            self._controls += 1
            if self._controls > CONTROLS:
                self.fault = f"at most {CONTROLS} pings in {CONTROLS_S:.0f} s are answered"
        else:
            if first & 0x0F:
                self._fragments = self.message = 0
            self._fragments += 1
            if self._fragments > FRAGMENTS:
                self.fault = f"a message has at most {FRAGMENTS} fragments"
        return not self.fault


def _header(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """Bytes of a frame's header and of its payload; (0, 0) if the header is incomplete."""
    if len(data) - at < 2:
        return 0, 0
    masked, length = data[at + 1] & 0x80, data[at + 1] & 0x7F
    more = _LENGTHS.get(length, 0)
    size = 2 + more + (4 if masked else 0)
    if len(data) - at < size:
        return 0, 0
    return size, int.from_bytes(data[at + 2 : at + 2 + more], "big") if more else length


FRAMES = 64
LINGER_S = 2.0


class BoundedWebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection. `pending` holds at most one read of the transport; `bodies` is the worker's."""

    bodies = BodyMemory()

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._frames = FrameCounter(self.loop.time)
        self._holding = Holding(self.bodies, self.config.ws_max_size)
        self._scheduled = self._held = self._ended = False
        self.pending = bytearray()

    def data_received(self, data: bytes) -> None:
        """asyncio calls this. The first data is the whole handshake, from the HTTP protocol."""
        if not self.handshake_initiated:
            super().data_received(data)
            return
        if not self._ended:
            self.pending += data
            self._parse()

    async def receive(self) -> Any:
        """The application calls this; data that waited for it is processed."""
        message = await super().receive()
        self._frames.message = 0
        self._holding.become(len(self.pending))
        self._later()
        return message

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio calls this. Messages that the application takes later no longer count."""
        self.pending.clear()
        self._holding.release()
        super().connection_lost(exc)

    def _later(self) -> None:
        if self.pending and not self._scheduled:
            self._scheduled = True
            self.loop.call_soon(self._again)

    def _again(self) -> None:
        self._scheduled = False
        self._parse()

    def _parse(self) -> None:
        if self._ended or self.disconnected or self.transport.is_closing():
            self.pending.clear()
            return
        if self.read_paused and self.pending:
            return
        end = self._frames.take(self.pending, FRAMES)
        if end:
            super().data_received(bytes(self.pending[:end]))
            del self.pending[:end]
        if self._frames.fault:
            self._end(CloseCode.POLICY_VIOLATION, self._frames.fault)
            return
        try:
            self._holding.become(self._frames.message + len(self.pending))
        except RequestError as error:
            self._end(CloseCode.TRY_AGAIN_LATER, error.message)
            return
        if self.read_paused or self.transport.is_closing():
            return
        if self.pending and end > 0:  # reading pauses while whole frames wait for their turn
            self._held = True
            self.transport.pause_reading()
            self._later()
        elif self._held:
            self._held = False
            self.transport.resume_reading()

    def _end(self, code: CloseCode, reason: str) -> None:
        """Close with this reason, and discard later data for a while: closing at once would lose the reason."""
        self.pending.clear()
        self._ended = True
        self._holding.release()
        self.conn.fail(code, reason)
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.transport.write(b"".join(self.conn.data_to_send()))
        self.transport.write_eof()
        self.close_sent = True
        self.close_timer = self.loop.call_later(LINGER_S, self.transport.close)
        if self._held or self.read_paused:
            self.transport.resume_reading()


def socket_protocol(bodies: BodyMemory) -> type[BoundedWebSocketProtocol]:
    """The protocol class of a worker; uvicorn makes an instance for each connection."""
    return type("SocketProtocol", (BoundedWebSocketProtocol,), {"bodies": bodies})
