"""The generating routes over WebSocket: each message is a separate request, answered by one or more messages.

Nothing is forwarded raw: the model is named in the message, so only a message can be given to a worker. It is handled
like a POST with the handshake's headers: key and limits are checked again, quota is reserved and settled, the queue
chooses the worker, a lost stream resumes elsewhere. Workers get a POST. Bounds: a message has at most `body_bytes` and
counts in the memory of bodies from its first byte; one is answered, WAITING may wait. If a client sends more, these are
answered and the connection is closed; the excess is dropped, up to one body. Time limits are those of HTTP. Frames are
read in slices within the loop's budget. A message has at most FRAGMENTS frames and one more a KiB, control frames may
come at CONTROLS a second; beyond that the connection is closed with 1008. A client that closes or leaves ends the
answer under way. A gateway that ends closes with 1001 after the answer under way; what is unanswered then was not
begun.
"""

import asyncio
import secrets
from collections import deque
from typing import ClassVar

from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, State
from websockets.protocol import Protocol as Frames
from websockets.utils import accept_key

from paceline_gateway.http.limits import BODY_BYTES, PARSED_BYTES, REQUEST, UnreadBuffer
from paceline_gateway.http.message import Head, HttpRequest
from paceline_gateway.http.request_reader import RejectedRequest, holder_of, too_many_in_flight
from paceline_gateway.http.response import WebSocketResponse
from paceline_gateway.http.server import Server

WAITING = 1
FRAGMENTS = 1024
CONTROLS = 16
"""Control frames a second; those of four seconds may come at once."""
_BURST = 4.0
_SLICE = 4096
_FRAME = 12
"""Units of the loop's budget that a frame costs."""
NORMAL, AWAY, POLICY, TRY_LATER = 1000, 1001, 1008, 1013
_FOREVER = float("inf")
_DATA_FRAMES = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})


class WebSocket(asyncio.Protocol):
    """A connection after the handshake; the answer to the handshake has the header lines `fields`."""

    websocket: ClassVar = True

    def __init__(self, server: Server, head: Head, transport: asyncio.Transport, fields: bytes) -> None:
        self.server = server
        self._head = head
        self._transport = transport
        self._frames = Frames(SERVER, max_size=server.limits.body_bytes)
        self._name = head.headers.get(b"x-request-id", b"")[:48] or secrets.token_hex(8).encode()
        self.holder = holder_of(head)
        self._message = bytearray()
        self._inbox: deque[bytes] = deque()
        self._reply: WebSocketResponse | None = None
        self._fragments = self._retained = self._unread = self._answering = self._held = self._count = self._late = 0
        self._place = self._over = self._excess = False
        self._controls_at = server.now() - _BURST
        self._packet = UnreadBuffer(server.budget, server.memory, self._go_on)
        self._stalled = _FOREVER
        self._reading = server.now() + server.limits.keepalive_timeout_s
        accept = accept_key(head.headers[b"sec-websocket-key"].decode()).encode()
        transport.write(
            b"HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"
            b"sec-websocket-accept: " + accept + b"\r\n" + fields + server.date + b"\r\n"
        )

    @property
    def deadline(self) -> float:
        return min(self._stalled, _FOREVER if self._reply is not None else self._reading)

    @property
    def busy(self) -> bool:
        """A message has begun to arrive, or is being answered."""
        return not self._over and bool(self._reply or self._inbox or self._fragments or self._unread)

    @property
    def evictable(self) -> bool:
        """No message waits or is being answered: another connection may take its place."""
        return not self.busy

    def data_received(self, data: bytes) -> None:
        budget = self.server.budget
        while data:
            if budget.left <= 0:
                self._packet.put(data, self.holder, self._transport)
                return
            piece, data = (data, b"") if len(data) <= _SLICE else (data[:_SLICE], data[_SLICE:])
            budget.left -= 1 + len(piece) // BODY_BYTES
            if not self._over:
                self._feed(piece)
                continue
            self._drop(len(piece))
            self._frames.receive_data(piece)  # only the client's close frame still counts
            budget.left -= _FRAME * len(self._frames.events_received())
            self._flush()

    def _feed(self, data: bytes) -> None:
        fresh = not (self._fragments or self._unread)
        self._unread += len(data)
        self._frames.receive_data(data)
        frames = self._frames.events_received()
        self.server.budget.left -= _FRAME * len(frames)
        for frame in frames:
            if isinstance(frame, Frame) and not self._over:
                self._take(frame)
        if fresh and (self._fragments or self._unread):  # the limit of a body, counted from its first byte
            self._reading = self.server.now() + self.server.limits.body_timeout_s
        self._flush()
        if not self._weigh():
            self._close(TRY_LATER, "The gateway holds as many messages as it may; retry.")
        else:
            self._advance()

    def _go_on(self, data: bytes) -> None:
        if self._stalled == _FOREVER:
            self._transport.resume_reading()
        self._advance()
        self.data_received(data)

    def eof_received(self) -> bool:
        """asyncio: the client sends no more, so it is gone."""
        self._gone()
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._over = True
        self._gone()
        self.server.connections.discard(self)

    def pause_writing(self) -> None:
        """asyncio: the client reads slower than we write, so stop reading what it sends, pings included."""
        self._stalled = self.server.now() + self.server.limits.write_timeout_s
        self._transport.pause_reading()
        if self._reply is not None:
            self._reply.on_pressure(True)

    def resume_writing(self) -> None:
        self._stalled = _FOREVER
        if not self._packet.waits:
            self._transport.resume_reading()
        if self._reply is not None:
            self._reply.on_pressure(False)
        self._advance()

    def send(self, messages: list[bytes]) -> None:
        if self._frames.state is State.OPEN:
            for message in messages:
                self._frames.send_text(message)
            self._flush()

    def write(self, data: bytes) -> None:
        """Send the data as one message."""
        self.send([data])

    def answered(self, *, keep_alive: bool) -> None:  # noqa: ARG002 - a handshake is for many messages
        """The message is answered: start the next one, or close."""
        self._reply = None
        self._answered()
        self._weigh()
        self._reading = self.server.now() + self.server.limits.keepalive_timeout_s
        if self.server.closing:
            self.settle()
        elif self._excess and not self._inbox:
            self._close(POLICY, f"One message is answered at a time, and {WAITING} may wait.")
        else:
            self._advance()

    def settle(self) -> None:
        """The gateway ends: close once nothing is being answered."""
        if self._reply is None:
            self._close(AWAY, "The gateway shuts down; what it has not answered was not begun.")

    def expire(self) -> None:
        """A limit has passed: cut a client that reads nothing, close one that sends nothing with a reason."""
        stalled = self._stalled <= self.server.now()
        if stalled or self._over:
            self._gone(stalled=stalled)
            self.abort()
        elif self._fragments or self._unread:
            self._close(POLICY, "The message did not arrive in time.")
        else:
            self._close(NORMAL, "Nothing was asked for too long.")

    def abort(self) -> None:
        self._transport.abort()

    def _take(self, frame: Frame) -> None:
        self._unread = 0
        if frame.opcode not in _DATA_FRAMES:
            now = self.server.now()  # pings have a rate limit; the client's close is no ping
            self._controls_at = max(self._controls_at, now - _BURST) + 1 / CONTROLS
            if self._controls_at > now:
                self._close(POLICY, f"Control frames come too often; send at most {CONTROLS} a second.")
            return
        self._excess = self._excess or len(self._inbox) > WAITING - (self._reply is not None)
        if self._excess:
            self._drop(_SLICE + len(frame.data))
            return
        self._fragments += 1
        self._retained += len(frame.data)
        if self._fragments == 1 and frame.fin:
            self._inbox.append(bytes(frame.data))
        else:
            self._message += frame.data
            if frame.fin:
                self._inbox.append(bytes(self._message))
            elif self._fragments > FRAGMENTS + (len(self._message) >> 10):
                self._close(POLICY, f"The message has too many fragments; send at most {FRAGMENTS}, or larger ones.")
        if frame.fin:
            self._fragments, self._message = 0, bytearray()

    def _advance(self) -> None:
        application = self.server.application
        while self._reply is None and self._inbox and not self._over and self._stalled == _FOREVER:
            if self.server.budget.left <= 0:
                self._packet.put(b"", self.holder, self._transport)
                return
            body = self._inbox.popleft()
            self._answering, self._count = len(body), self._count + 1
            self.server.budget.left -= REQUEST + len(body) // PARSED_BYTES
            name = self._name + b"-%d" % self._count
            head = Head("POST", self._head.path, self._head.headers | {b"x-request-id": name})
            self._reply = reply = WebSocketResponse(self)
            error, request = application.gate(head), HttpRequest(head, body, self.server.now(), True, True)
            self._place = error is None and self.server.answering.take(self.holder, 1)
            if error is not None:
                application.refuse(RejectedRequest(error, head, keep_alive=True), reply)
            elif self._place:
                application.handle(request, reply)
            else:
                application.refuse(too_many_in_flight(request), reply)

    def _answered(self) -> None:
        """Release what was held for the message that was answered."""
        if self._place:
            self._place = False
            self.server.answering.give(self.holder, 1)
        self._retained -= self._answering
        self._answering = 0

    def _weigh(self) -> bool:
        """Count the bytes of held messages in the gateway's memory; False if they do not fit."""
        held = 0 if self._over else self._unread + self._retained
        more, memory = held - self._held, self.server.memory
        if more > 0 and not memory.take(self.holder, more):
            return False
        memory.give(self.holder, max(0, -more))
        self._held = held
        return True

    def _flush(self) -> None:
        """Send what is pending in one write; when the frames' protocol ends, the connection ends."""
        data = self._frames.data_to_send()
        if out := b"".join(data):
            self._transport.write(out)
        if self._frames.state is not State.OPEN:
            self._gone()
            self._transport.close() if b"" in data else None

    def _close(self, code: int, reason: str) -> None:
        if self._frames.state is State.OPEN:
            self._frames.send_close(code, reason)
        self._reading = self.server.now() + self.server.limits.lingering_close_s
        self._flush()

    def _drop(self, size: int) -> None:
        """Read and drop, within a bound, what will not be answered."""
        self._late += size
        if self._late > self.server.limits.body_bytes:
            self.abort()

    def _gone(self, *, stalled: bool = False) -> None:
        """Drop everything that waits for an answer; the client's close or `expire` closes the connection."""
        if not self._over:
            self._over, self._reading = True, self.server.now() + self.server.limits.lingering_close_s
        reply, self._reply = self._reply, None
        self._answered()
        self._inbox.clear()
        self._message = bytearray()
        self._unread = self._fragments = self._retained = 0
        self._weigh()
        if reply is not None:
            reply.gone(stalled=stalled)
