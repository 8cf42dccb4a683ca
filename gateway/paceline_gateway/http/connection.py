"""A client's connection: bytes to the reader, requests to the application one at a time, answers back in order.

A client that closes its sending side counts as gone, as in nginx and Envoy. A closed socket sends the same FIN as a
half-closed one, a write fails only a round trip after it, and while a request waits for a worker nothing is written at
all; work for a client that is gone must stop within milliseconds. Known hole: a half-closing client (`nc -N`) gets no
answer. Bytes that arrive after the loop's budget is used up wait in the connection, which reads no more until its turn.
"""

import asyncio
import socket
from collections.abc import Callable
from typing import ClassVar, cast

from paceline_core.errors import Code, RequestError
from paceline_gateway.http.limits import BODY_BYTES, PARSED_BYTES, REQUEST, SLICE, UnreadBuffer
from paceline_gateway.http.message import Head
from paceline_gateway.http.request_reader import RejectedRequest, RequestReader, holder_of, too_many_in_flight
from paceline_gateway.http.response import ResponseWriter
from paceline_gateway.http.server import Server
from paceline_gateway.http.websocket import WebSocket

WRITE_BUFFER = 256 << 10
DROPPED_BODIES = 4
"""How many bodies' worth of bytes a refused client may still send."""
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_FOREVER = float("inf")


def _nowhere(_data: bytes) -> None:
    """Drop bytes for a client that is gone."""


class Connection(asyncio.Protocol):
    """`deadline` is when `expire` is due; the server checks it a few times a second.

    `write` sends bytes; it does nothing when the client is gone. `holder` is the tenant of the last request with a
    valid key, or the client's address before that.
    """

    websocket: ClassVar = False

    def __init__(self, server: Server) -> None:
        self.server = server
        self._reader = RequestReader(server.limits, server.memory, server.gate, server.now)
        self._transport: asyncio.Transport | None = None
        self.write: Callable[[bytes], None] = _nowhere
        self._reply: ResponseWriter | None = None
        self._held = 0
        self._held_by: str | None = None
        self._unread: UnreadBuffer | None = None
        self._dropped = 0
        self._tenant = ""
        self._over = False
        self._lingering = False
        self._stalled = _FOREVER
        self._reading = server.now() + server.limits.keepalive_timeout_s

    @property
    def deadline(self) -> float:
        return min(self._stalled, _FOREVER if self._reply is not None else self._reading)

    @property
    def holder(self) -> str:
        """The tenant or address that its place counts for."""
        if self._tenant or self._transport is None:
            return self._tenant
        peer = self._transport.get_extra_info("peername")
        return str(peer[0]) if peer else ""

    @property
    def evictable(self) -> bool:
        """No request of it is being answered: another connection may take its place."""
        return self._reply is None

    @property
    def busy(self) -> bool:
        """A request has begun to arrive, or is being answered."""
        return self._transport is not None and not self._over and (self._reply is not None or not self._reader.idle)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)  # uvloop's transport only has its methods
        transport.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        transport.set_write_buffer_limits(high=WRITE_BUFFER)
        self.write = transport.write
        server = self.server
        if len(server.connections) < server.limits.connections or server.make_room():
            server.connections.add(self)
        else:
            server.refused += 1
            full = RequestError(Code.NO_CAPACITY, "The gateway has too many connections; retry.", retry_after=1.0)
            ResponseWriter(self, keep_alive=False, chunked=True).fail(full)

    def data_received(self, data: bytes) -> None:
        """Read and answer, slice by slice, within this turn's budget."""
        budget = self.server.budget
        if self._lingering:  # drop bounded bytes of a refused client: a reset could overtake the answer
            self._dropped += len(data)
            budget.left -= 1 + len(data) // BODY_BYTES
            if self._dropped > DROPPED_BODIES * self.server.limits.body_bytes:
                self.abort()
            elif budget.left <= 0:
                self._wait(b"")
            return
        while data and not self._over:
            if budget.left <= 0:
                self._wait(data)
                return
            piece, data = (data, b"") if len(data) <= SLICE else (data[:SLICE], data[SLICE:])
            budget.left -= self._feed(piece)
            self._advance()

    def _feed(self, data: bytes) -> int:
        reader, server = self._reader, self.server
        was_idle, was_head = reader.idle, not reader.in_body
        cost = reader.feed(data)
        if not reader.idle:
            # each part of a request has its own limit, counted from where the part begins
            if was_idle:
                self._reading = server.now() + server.limits.header_timeout_s
            if was_head and reader.in_body:
                self._reading = server.now() + server.limits.body_timeout_s
            if reader.expects and self._reply is None:
                reader.expects = False
                self.write(_CONTINUE)
        return cost

    def _wait(self, data: bytes) -> None:
        """Continue in a later turn of the loop, and read nothing until then."""
        if self._transport is not None:
            if self._unread is None:
                self._unread = UnreadBuffer(self.server.budget, self.server.memory, self._go_on)
            self._unread.put(data, self.holder, self._transport)

    def _go_on(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.resume_reading()
            self._advance()
            if not self._over:
                self.data_received(data)

    def _advance(self) -> None:
        """Start the next request; not while answers to earlier ones wait to be read, or they would pile up."""
        server, budget, ready = self.server, self.server.budget, self._reader.ready
        while self._reply is None and ready and not self._over and self._stalled == _FOREVER:
            if budget.left <= 0:
                self._wait(b"")
                return
            item = ready.popleft()
            head, keep_alive, chunked = item.head, item.keep_alive, item.chunked
            if head is None:
                self._reply = reply = ResponseWriter(self, keep_alive=keep_alive, chunked=chunked)
            else:
                fields, bare = server.cors.fields(head.headers), head.method == "HEAD"
                self._reply = reply = ResponseWriter(
                    self, keep_alive=keep_alive, chunked=chunked, bare=bare, path=head.path, fields=fields
                )
            budget.left -= REQUEST
            if isinstance(item, RejectedRequest):
                server.application.refuse(item, reply)
            elif item.head.upgrade:
                self._switch(item.head)
            else:
                budget.left -= len(item.body) // PARSED_BYTES
                self._held, self._held_by = len(item.body), holder_of(item.head)
                self._tenant = self._held_by or self._tenant
                if server.answering.take(self._held_by, 1):
                    server.application.handle(item, reply)
                else:
                    server.memory.give(self._held_by, self._held)
                    self._held_by = None
                    server.application.refuse(too_many_in_flight(item), reply)

    def eof_received(self) -> bool:
        """asyncio: the client sends no more, so it is gone."""
        self._client_gone()
        return False

    def connection_lost(self, _error: Exception | None) -> None:
        self._transport, self.write = None, _nowhere
        self._over = True
        self._client_gone()
        self.server.connections.discard(self)

    def pause_writing(self) -> None:
        self._stalled = self.server.now() + self.server.limits.write_timeout_s
        if self._reply is not None:
            self._reply.on_pressure(True)

    def resume_writing(self) -> None:
        self._stalled = _FOREVER
        if self._reply is not None:
            self._reply.on_pressure(False)
        self._advance()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def answered(self, *, keep_alive: bool) -> None:
        """The current reply is complete: start the next request, or close."""
        self._reply = None
        self._release()
        limits = self.server.limits
        self._reading = self.server.now() + (limits.keepalive_timeout_s if self._reader.idle else limits.body_timeout_s)
        if not keep_alive or (self._reader.deaf and not self._reader.ready):
            self._hang_up()
        elif self._reader.ready:
            self._advance()

    def settle(self) -> None:
        """Nothing to do: the head of the next answer asks the client to close."""

    def expire(self) -> None:
        """A limit has passed: cut a stalled or silent client, refuse a slow request."""
        stalled = self._stalled <= self.server.now()
        if stalled or self._lingering or self._reader.idle:
            self._client_gone(stalled=stalled)
            self.abort()
        else:
            self._reader.late()
            self._advance()

    def _release(self) -> None:
        """Release what was held for the request that was answered."""
        holder, self._held_by = self._held_by, None
        if holder is not None:
            self.server.answering.give(holder, 1)
            self.server.memory.give(holder, self._held)

    def _switch(self, head: Head) -> None:
        """Turn the connection into a WebSocket. Its client may send only after our answer to the handshake."""
        transport, self._transport, self.write = self._transport, None, _nowhere
        self._reply, self._over = None, True
        self._reader.close()
        if transport is None:
            return
        server = self.server
        websocket = WebSocket(server, head, transport, server.application.standing(head))
        server.connections.discard(self)
        server.connections.add(websocket)
        transport.set_protocol(websocket)
        if server.closing:
            websocket.settle()

    def _client_gone(self, *, stalled: bool = False) -> None:
        reply, self._reply = self._reply, None
        self._release()
        self._reader.close()
        if reply is not None:
            reply.gone(stalled=stalled)

    def _hang_up(self) -> None:
        """Close once everything is sent; a refused client may still be sending, so read and drop that for a moment.

        Closing with unread bytes would reset the connection, and the reset could overtake the answer.
        """
        if self._transport is None or self._over:
            return
        self._over = True
        self._lingering = self._reader.deaf or not self._reader.idle
        self._reader.close()
        if self._lingering:
            self._reading = self.server.now() + self.server.limits.lingering_close_s
            self._transport.write_eof()
        else:
            self._transport.close()
