"""How much of what clients send is looked at in one turn of the event loop: counted in requests, frames and bytes."""

from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, cast

import pytest
from tests.gateway import manifests
from tests.gateway.transport_double import Transport
from websockets.frames import Frame, Opcode

from paceline_core.clock import ManualClock
from paceline_core.errors import Code, RequestError
from paceline_core.objects import Tenant, resolve_tenant
from paceline_core.registry.enums import ClientLimit
from paceline_core.telemetry import Metrics
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection import Connection
from paceline_gateway.http.limits import REQUEST, SLICE, TURN, LoopBudget
from paceline_gateway.http.message import Head, HttpRequest
from paceline_gateway.http.request_reader import RejectedRequest
from paceline_gateway.http.response import ResponseWriter
from paceline_gateway.http.server import PAUSE_S, Server
from paceline_gateway.http.websocket import CONTROLS, FRAGMENTS, POLICY, WebSocket
from paceline_gateway.telemetry.metrics import LogSinks, ProcessMetrics

GET = b"GET /health HTTP/1.1\r\nhost: a\r\n\r\n"
CHUNKED = b"POST /a HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n"
HANDSHAKE = Head("GET", "/v1/completions", {b"sec-websocket-key": b"x" * 24})
REQUESTS_A_TURN = TURN // REQUEST + 1


class App:
    """Answers at once, or never where it `holds`; `gate` refuses the path /no."""

    def __init__(self, *, holds: bool = False) -> None:
        self.handled: list[HttpRequest] = []
        self.refused: list[RejectedRequest] = []
        self.replies: list[ResponseWriter] = []
        self.holds = holds

    def gate(self, head: Head) -> RequestError | None:
        if head.path == "/no":
            return RequestError(Code.INVALID_API_KEY, "no")
        tenant = head.headers.get(b"x-tenant", b"").decode()
        head.tenant = resolve_tenant(Tenant.model_validate(manifests.tenant(tenant))) if tenant else None
        return None

    def turn_away(self, _: Head) -> RequestError | None:
        return None

    def standing(self, _: Head) -> bytes:
        return b""

    def handle(self, request: HttpRequest, reply: ResponseWriter) -> None:
        self.handled.append(request)
        self.replies.append(reply)
        if not self.holds:
            reply.whole(200, b"", b"ok")

    def refuse(self, refusal: RejectedRequest, reply: ResponseWriter) -> None:
        self.refused.append(refusal)
        reply.fail(refusal.error)


class World:
    """A server on turns that the test takes."""

    def __init__(self, app: App | None = None, **limits: Any) -> None:
        self.app, self.clock = app or App(), ManualClock()
        self.soon: deque[Callable[[], None]] = deque()
        self.server = Server(self.app, HttpLimits(**limits), self.clock, LoopBudget(self.soon.append))
        self.addresses = count(1)

    def connect(self, address: str = "10.0.0.1") -> tuple[Connection, Transport]:
        connection, transport = Connection(self.server), Transport(address)
        transport.lost = connection.connection_lost
        connection.connection_made(cast("Any", transport))
        return connection, transport

    def socket(self) -> tuple[WebSocket, Transport]:
        transport = Transport("10.0.0.1")
        return WebSocket(self.server, HANDSHAKE, cast("Any", transport), b""), transport

    def turn(self) -> bool:
        """One turn of the loop; whether there was anything to do."""
        steps = list(self.soon)
        self.soon.clear()
        for step in steps:
            step()
        return bool(steps)

    def turns(self) -> Iterator[None]:
        while self.turn():
            yield


def test_many_connections_that_send_at_once_are_served_a_budget_a_turn() -> None:
    world = World()
    clients = [world.connect() for _ in range(1000)]
    for connection, _ in clients:
        connection.data_received(GET * 4)
    most = before = len(world.app.handled)
    for _ in world.turns():
        most, before = max(most, len(world.app.handled) - before), len(world.app.handled)
    assert len(world.app.handled) == 4000
    assert most <= REQUESTS_A_TURN
    assert world.server.memory.used == 0
    assert all(transport.written.count(b"200 OK") == 4 and transport.reading for _, transport in clients)


def test_a_connection_that_waits_for_its_turn_reads_nothing_and_comes_before_those_after_it() -> None:
    world = World()
    first, at_first = world.connect()
    second, at_second = world.connect()
    world.server.budget.left = 0
    first.data_received(GET)
    second.data_received(GET)
    assert not at_first.reading
    assert world.server.memory.used == 2 * len(GET), "what waits is counted"
    world.server.budget.left = 1
    assert not world.app.handled
    world.turn()
    assert len(world.app.handled) == 2
    assert at_first.reading
    assert at_second.reading


def test_large_bodies_are_judged_one_a_turn() -> None:
    world, size = World(), 4 << 20
    for _ in range(5):
        connection, _ = world.connect()
        connection.data_received(b"POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % size)
        connection.data_received(b"x" * size)
    while len(world.app.handled) < 5:
        before = len(world.app.handled)
        assert world.turn()
        assert len(world.app.handled) <= before + 1


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_body_in_tiny_chunks_is_held_as_what_it_is_and_refused_early(size: int) -> None:
    world = World()
    connection, transport = world.connect()
    connection.data_received(CHUNKED)
    chunk, sent = b"%x\r\n%b\r\n" % (size, b"x" * size), 0
    while not world.app.refused:
        connection.data_received(chunk * 1000)
        sent += 1000
        reader = connection._reader
        assert world.server.memory.used == len(reader._body) + len(reader._more) or world.app.refused
        assert sent < 100_000
    assert "chunks are too small" in world.app.refused[0].error.message
    assert world.server.memory.used == 0
    assert b"connection: close" in transport.written


def test_a_body_in_chunks_of_ordinary_size_is_taken_whole() -> None:
    world = World()
    connection, _ = world.connect()
    connection.data_received(CHUNKED)
    for _ in range(4096):
        connection.data_received(b"100\r\n" + b"x" * 256 + b"\r\n")
        world.turn()
    connection.data_received(b"0\r\n\r\n")
    assert [len(request.body) for request in world.app.handled] == [1 << 20]


def test_chunk_extensions_do_not_outweigh_the_body() -> None:
    world = World()
    connection, _ = world.connect()
    connection.data_received(CHUNKED)
    for _ in range(20):
        connection.data_received(b"1;e=" + b"y" * 4000 + b"\r\nx\r\n")
    assert world.app.refused


def test_what_a_refused_client_goes_on_sending_is_dropped_up_to_a_bound() -> None:
    world = World(body_bytes=1 << 18)
    connection, transport = world.connect()
    connection.data_received(b"POST /no HTTP/1.1\r\nhost: a\r\ncontent-length: 260000\r\n\r\n" + b"x" * 1000)
    assert world.app.refused
    for _ in range(16):
        connection.data_received(b"x" * SLICE)
        world.turn()
    assert not transport.aborted
    connection.data_received(b"x" * SLICE)
    assert transport.aborted
    assert world.server.memory.used == 0


def frame(opcode: Opcode, data: bytes = b"", *, fin: bool = True) -> bytes:
    return Frame(opcode, data, fin).serialize(mask=True)


FLOODS = {
    "empty fragments": frame(Opcode.TEXT, fin=False) + frame(Opcode.CONT, fin=False) * 200_000,
    "fragments of a byte": frame(Opcode.TEXT, b"x", fin=False) + frame(Opcode.CONT, b"y", fin=False) * 200_000,
    "pings": frame(Opcode.PING) * 200_000,
    "pongs": frame(Opcode.PONG, b"z" * 125) * 20_000,
    "messages": frame(Opcode.TEXT, b"{}") * 100_000,
    "empty messages": frame(Opcode.TEXT) * 100_000,
}


@pytest.mark.parametrize("name", FLOODS)
def test_a_flood_of_frames_is_read_a_slice_a_turn_and_ends_its_connection(name: str) -> None:
    world = World(App(holds=True))
    socket, transport = world.socket()
    budget, data, spent = world.server.budget, FLOODS[name], []
    for at in range(0, len(data), 256_000):
        budget.left = TURN
        socket.data_received(data[at : at + 256_000])
        spent += [TURN - budget.left, *(TURN - budget.left for _ in world.turns())]
        if transport.aborted:
            break
    assert max(spent) <= TURN + 12 * 4096 // 6 + 2 * REQUEST, "no more than a slice beyond the budget"
    assert world.server.memory.used <= 4096
    for reply in world.app.replies:
        reply.whole(200, b"", b"ok")
        while world.turn():
            pass
    assert socket._over
    assert len(world.app.handled) <= 2
    assert transport.aborted or POLICY.to_bytes(2, "big") in transport.written


def test_a_message_of_many_large_fragments_and_pings_now_and_then_pass() -> None:
    world = World()
    socket, transport = world.socket()
    socket.data_received(frame(Opcode.TEXT, b"x" * 4000, fin=False))
    for index in range(FRAGMENTS + 500):
        socket.data_received(frame(Opcode.CONT, b"x" * 4000, fin=False))
        if index % 10 == 0:
            world.clock.advance(1 / CONTROLS)
            socket.data_received(frame(Opcode.PING))
        while world.turn():
            pass
    socket.data_received(frame(Opcode.CONT, b"x"))
    while world.turn():
        pass
    assert [len(request.body) for request in world.app.handled] == [4000 * (FRAGMENTS + 501) + 1]
    assert not transport.aborted


def test_one_tenant_leaves_places_and_memory_to_others() -> None:
    world = World(App(holds=True), connections=90, memory_bytes=90_000, body_bytes=1024)

    def ask(tenant: bytes, address: str) -> None:
        connection, _ = world.connect(address)
        connection.data_received(
            b"POST /a HTTP/1.1\r\nhost: a\r\nx-tenant: %b\r\ncontent-length: 1000\r\n\r\n" % tenant
        )
        connection.data_received(b"x" * 1000)
        while world.turn():
            pass

    for _ in range(89):
        ask(b"greedy", "10.0.0.1")
    assert {refusal.error.code for refusal in world.app.refused} == {Code.NO_CAPACITY}
    assert 75 <= len(world.app.handled) <= 81
    before = len(world.app.handled)
    ask(b"modest", "10.0.0.2")
    assert len(world.app.handled) == before + 1


def test_the_newest_client_gets_a_place_from_whoever_has_most_that_ask_nothing() -> None:
    world = World(connections=200)
    others = [world.connect(f"10.0.1.{index}") for index in range(20)]
    for connection, _ in others:
        connection.data_received(GET)
    crowd = [world.connect() for _ in range(400)]
    assert len(world.server.connections) <= 200
    assert not any(transport.aborted for _, transport in others)
    assert world.server.evicted >= 220
    assert not crowd[-1][1].aborted


def test_a_connection_with_a_request_under_way_never_makes_room() -> None:
    world = World(App(holds=True), connections=3)
    busy = [world.connect(f"10.0.0.{index}") for index in range(3)]
    for index, (connection, _) in enumerate(busy):
        connection.data_received(b"GET /a HTTP/1.1\r\nhost: a\r\nx-tenant: t%d\r\n\r\n" % index)
    _, late = world.connect("10.0.0.9")
    assert b"503" in late.written
    assert not any(transport.aborted for _, transport in busy)
    assert (world.server.refused, world.server.evicted) == (1, 0)


def test_a_burst_of_clients_where_every_place_answers_costs_one_look_at_all_places() -> None:
    class Looks(set[Any]):
        count = 0

        def __iter__(self) -> Iterator[Any]:
            self.count += 1
            return super().__iter__()

    world = World(App(holds=True), connections=3)
    busy = [world.connect(f"10.0.0.{index}")[0] for index in range(3)]
    for index, connection in enumerate(busy):
        connection.data_received(b"GET /a HTTP/1.1\r\nhost: a\r\nx-tenant: t%d\r\n\r\n" % index)
    world.server.connections = looks = Looks(world.server.connections)
    for _ in range(100):
        world.connect("10.0.0.9")
    assert (looks.count, world.server.refused) == (1, 100)
    busy[0].abort()
    busy[0].connection_lost(None)
    world.connect("10.0.0.9")
    world.clock.advance(PAUSE_S)
    world.connect("10.0.0.8")
    assert (looks.count, world.server.refused, world.server.evicted) == (2, 100, 1)


def test_what_was_bounded_is_counted_by_limit() -> None:
    world = World(connections=1)
    metrics = Metrics("gateway")
    series = ProcessMetrics(metrics, world.server, LogSinks())
    world.connect()
    connection, _ = world.connect()
    world.server.budget.left = 0
    connection.data_received(GET)
    world.turn()
    series.show()
    series.show()
    counts = {labels["limit"]: value for labels, value in metrics.numbers("paceline_gateway_limited_total")}
    zeros = dict.fromkeys(ClientLimit, 0)
    assert counts == zeros | {ClientLimit.EVICTED: 1, ClientLimit.LOOP_BUDGET: 1}
