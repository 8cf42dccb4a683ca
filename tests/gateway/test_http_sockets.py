import asyncio
import socket
from typing import Any, cast

from paceline_core.clock import ManualClock
from paceline_core.errors import RequestError
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection import Connection
from paceline_gateway.http.connection_pool import DisconnectReason, UpstreamConnection, UpstreamExchange
from paceline_gateway.http.message import Head, Headers, HttpRequest
from paceline_gateway.http.request_reader import RejectedRequest
from paceline_gateway.http.response import ResponseWriter
from paceline_gateway.http.server import Server


class Socket:
    """Remembers its options."""

    def __init__(self) -> None:
        self.options: dict[tuple[int, int], int] = {}

    def setsockopt(self, level: int, name: int, value: int) -> None:
        self.options[level, name] = value


class Transport:
    """Just enough of one to be connected to."""

    def __init__(self) -> None:
        self.socket = Socket()
        self.written = b""

    def get_extra_info(self, name: str) -> Socket:
        assert name == "socket"
        return self.socket

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data

    def writelines(self, data: list[bytes]) -> None:
        self.written += b"".join(data)

    def is_closing(self) -> bool:
        return False

    def resume_reading(self) -> None:
        pass


class Silent:
    """An application that is never asked."""

    def gate(self, head: Head) -> RequestError | None:
        raise AssertionError(head)

    def standing(self, head: Head) -> bytes:
        return b""

    def turn_away(self, head: Head) -> RequestError | None:
        raise AssertionError(head)

    def handle(self, request: HttpRequest, reply: ResponseWriter) -> None:
        raise AssertionError(request)

    def refuse(self, refusal: RejectedRequest, reply: ResponseWriter) -> None:
        raise AssertionError(refusal)


def test_both_legs_send_without_delay() -> None:
    connection = Connection(Server(Silent(), HttpLimits(), ManualClock()))
    upstream = UpstreamConnection(lambda _: None, lambda _: None)
    for protocol in (connection, upstream):
        transport: Any = Transport()
        protocol.connection_made(cast("asyncio.Transport", transport))
        assert transport.socket.options == {(socket.IPPROTO_TCP, socket.TCP_NODELAY): 1}


class Prompt(Silent):
    """An application that answers at once."""

    def gate(self, head: Head) -> RequestError | None:
        return None

    def handle(self, request: HttpRequest, reply: ResponseWriter) -> None:
        reply.whole(200, b"", request.head.path.encode())


class Taker:
    """Notes of each piece whether it is the last."""

    def __init__(self) -> None:
        self.exchange = UpstreamExchange(self)
        self.seen: list[bool] = []
        self.ended = False

    def head(self, status: int, headers: Headers) -> None: ...

    def data(self, data: bytes, last: bool) -> None:
        self.seen.append(last)

    def end(self) -> None:
        self.ended = True

    def lost(self, loss: DisconnectReason) -> None:
        raise AssertionError(loss)


def test_a_receiver_is_told_which_piece_its_end_follows_at_once() -> None:
    upstream = UpstreamConnection(lambda _: None, lambda _: None)
    upstream.connection_made(cast("asyncio.Transport", Transport()))
    one, two = Taker(), Taker()
    one.exchange.use(upstream, [b"POST"])
    upstream.data_received(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n")
    upstream.data_received(b"1\r\nb\r\n0\r\n\r\n")
    assert one.seen == [False, True]
    assert one.ended
    two.exchange.use(upstream, [b"POST"])
    upstream.data_received(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\na")
    assert two.seen == [True]


def test_answers_do_not_pile_up_for_a_pipeline_that_reads_nothing() -> None:
    connection, transport = Connection(Server(Prompt(), HttpLimits(), ManualClock())), Transport()
    connection.connection_made(cast("asyncio.Transport", transport))
    connection.pause_writing()
    connection.data_received(b"GET /a HTTP/1.1\r\nhost: a\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n")
    assert not transport.written
    connection.resume_writing()
    assert transport.written.index(b"/a") < transport.written.index(b"/b")
