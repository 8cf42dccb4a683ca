"""Streams are kept open, what they say is believed for a while, and who is silent is known."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.autoscaler.talkers import KEY, Talkers, demand_report, eventually, load_report

from paceline_autoscaler.signals import GatewayDemand, WorkerLoads, resolve
from paceline_autoscaler.signals.live import load_of
from paceline_autoscaler.types import unix_clock
from paceline_core.auth import TokenVerifier, jwk_set, public_jwk
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.kube import Endpoint, ObjectKey, ServiceEndpoints
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import DemandReport, KVLoad, WorkerState
from paceline_core.wire.message import LINE_LIMIT
from paceline_core.wire.stream import ReportStreams, StreamSource, subscribe

PLACE = StreamSource("here", "http://one:1/internal/demand", GATEWAY_AUDIENCE)


class Reader:
    """Streams that keep every line."""

    def __init__(self, talkers: Talkers) -> None:
        self.lines: list[DemandReport] = []
        self.streams = ReportStreams(DemandReport, talkers.link(), lambda _, line: self.lines.append(line))


@pytest.fixture
def talkers() -> Talkers:
    return Talkers()


@pytest.fixture
async def reader(talkers: Talkers) -> AsyncIterator[Reader]:
    made = Reader(talkers)
    yield made
    await made.streams.close()


async def test_every_line_is_handed_on_in_order_and_the_last_is_kept(talkers: Talkers, reader: Reader) -> None:
    reader.streams.follow([PLACE])
    for queued in (1, 2, 3):
        talkers["one:1"].say(demand_report(queued=queued))
    await eventually(lambda: len(reader.lines) == 3)
    assert [line.services[0].classes[0].queued for line in reader.lines] == [1, 2, 3]
    assert reader.streams.received[PLACE].message == reader.lines[-1]


async def test_a_line_in_pieces_is_one_line(talkers: Talkers, reader: Reader) -> None:
    line = demand_report(queued=5).model_dump_json().encode()
    reader.streams.follow([PLACE])
    for piece in (line[:10], line[10:], b"\n\n"):
        talkers["one:1"].say(piece)
    await eventually(lambda: len(reader.lines) == 1)


async def test_a_reader_shows_a_token_for_its_audience(talkers: Talkers, reader: Reader) -> None:
    talkers["one:1"].say(demand_report())
    reader.streams.follow([PLACE])
    await eventually(lambda: bool(reader.lines))
    token = talkers["one:1"].readers[0].headers[HEADER]
    claims = TokenVerifier(jwk_set([public_jwk(KEY, "autoscaler")]), GATEWAY_AUDIENCE).verify(
        token, talkers.clock.utc()
    )
    assert claims.issuer == "autoscaler"


async def test_a_cut_stream_is_opened_again(talkers: Talkers, reader: Reader) -> None:
    reader.streams.follow([PLACE])
    talkers["one:1"].say(demand_report())
    talkers["one:1"].hang_up()
    talkers["one:1"].say(demand_report())
    await eventually(lambda: len(reader.lines) == 2)
    assert len(talkers["one:1"].readers) == 2


async def test_a_refused_reader_comes_back_ever_more_slowly(talkers: Talkers, reader: Reader) -> None:
    talkers["one:1"].status = 401
    reader.streams.follow([PLACE])
    await eventually(lambda: len(talkers["one:1"].readers) > 8)
    assert talkers.clock.monotonic() >= 0.05 + 0.1 + 0.2 + 0.5 + 1.0 + 2.0 + 2.0
    talkers["one:1"].status = 200
    talkers["one:1"].say(demand_report())
    await eventually(lambda: bool(reader.lines))


async def test_who_does_not_listen_yet_is_no_news_and_who_refuses_or_leaves_is(
    talkers: Talkers, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "paceline_core.wire.stream")
    cuts = []
    task = asyncio.create_task(
        subscribe(DemandReport, PLACE, talkers.link(), reader.lines.append, lambda _: cuts.append(len(caplog.records)))
    )
    await eventually(lambda: len(cuts) == 1)
    talkers["one:1"].say(demand_report())
    talkers.clock.advance(0.05)
    await eventually(lambda: len(reader.lines) == 1)
    assert caplog.records == []
    talkers["one:1"].hang_up()
    await eventually(lambda: len(cuts) == 2)
    await eventually(lambda: len(caplog.records) == 1)
    task.cancel()


async def test_a_place_that_refuses_is_news_once(
    talkers: Talkers, reader: Reader, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "paceline_core.wire.stream")
    talkers["one:1"].status = 403
    reader.streams.follow([PLACE])
    for _ in range(4):
        talkers.clock.advance(2)
        await eventually(lambda: True)
    await eventually(lambda: len(caplog.records) == 1)
    assert "403" in vars(caplog.records[0])["reason"]


async def test_a_place_that_does_not_answer_is_asked_again(talkers: Talkers, reader: Reader) -> None:
    reader.streams.follow([PLACE])
    await eventually(lambda: talkers.clock.monotonic() > 1)
    talkers["one:1"].say(demand_report())
    await eventually(lambda: bool(reader.lines))


LONG = b"x" * (LINE_LIMIT + 1)


@pytest.mark.parametrize("line", [b"nonsense\n", b'{"v": 2}\n', LONG], ids=["text", "version", "long"])
async def test_a_line_that_is_not_understood_ends_the_stream_and_it_is_opened_again(
    talkers: Talkers, reader: Reader, line: bytes
) -> None:
    reader.streams.follow([PLACE])
    talkers["one:1"].say(line)
    talkers["one:1"].say(demand_report())
    await eventually(lambda: bool(reader.lines))
    assert len(talkers["one:1"].readers) == 2


async def test_who_is_silent_is_no_longer_believed(talkers: Talkers, reader: Reader) -> None:
    reader.streams.follow([PLACE])
    talkers["one:1"].say(demand_report())
    await eventually(lambda: bool(reader.lines))
    talkers.clock.advance(5)
    assert set(reader.streams.fresh(6)) == {PLACE}
    assert set(reader.streams.fresh(4)) == set()


async def test_a_place_that_is_gone_is_closed_and_forgotten(talkers: Talkers, reader: Reader) -> None:
    reader.streams.follow([PLACE])
    talkers["one:1"].say(demand_report())
    await eventually(lambda: bool(reader.lines))
    reader.streams.follow([])
    assert reader.streams.fresh(1e9) == {}
    talkers["one:1"].say(demand_report())
    talkers.clock.advance(10)
    assert len(reader.lines) == 1


class Names:
    """A resolver whose answers the test sets; a name without any cannot be resolved."""

    def __init__(self, **names: tuple[str, ...]) -> None:
        self.names = dict(names)

    async def __call__(self, host: str, port: int) -> tuple[str, ...]:
        if host not in self.names:
            raise OSError(f"{host} is unknown")
        return self.names[host]


class Front:
    """The gateways of a test, and how often the bell was rung."""

    def __init__(self, talkers: Talkers, *addresses: str, **names: tuple[str, ...]) -> None:
        self.rung = 0
        self.names = Names(**names)
        self.gateways = GatewayDemand(addresses, talkers.link(), unix_clock(talkers.clock), self._ring, self.names)

    def _ring(self) -> None:
        self.rung += 1


async def test_a_name_stands_for_every_address_behind_it(talkers: Talkers) -> None:
    front = Front(talkers, "gateways:81", gateways=("10.0.0.1", "10.0.0.2"))
    await front.gateways.find()
    talkers["10.0.0.1:81"].say(demand_report("g1", queued=2))
    await eventually(lambda: front.gateways.reporting == 1)
    partial = front.gateways.demand("default/chat")
    assert (partial.expected, partial.heard) == (2, 1)
    talkers["10.0.0.2:81"].say(demand_report("g2", queued=3))
    await eventually(lambda: front.gateways.reporting == 2)
    assert front.gateways.demand("default/chat").classes[0].queued == 5
    assert front.gateways.age_s() is not None
    await front.gateways.close()


async def test_gateways_come_and_go_with_the_name(talkers: Talkers) -> None:
    front = Front(talkers, "gateways:81", gateways=("10.0.0.1",))
    await front.gateways.find()
    front.names.names["gateways"] = ("10.0.0.2", "10.0.0.3")
    await front.gateways.find()
    assert front.gateways.hosts == ("10.0.0.2:81", "10.0.0.3:81")
    await front.gateways.close()


async def test_a_name_that_is_lost_keeps_its_addresses(talkers: Talkers) -> None:
    front = Front(talkers, "gateways:81", gateways=("10.0.0.1",))
    await front.gateways.find()
    del front.names.names["gateways"]
    await front.gateways.find()
    assert front.gateways.hosts == ("10.0.0.1:81",)
    await front.gateways.close()


async def test_a_name_never_resolved_is_a_gateway_never_heard(talkers: Talkers) -> None:
    front = Front(talkers, "gateways:81")
    await front.gateways.find()
    demand = front.gateways.demand("default/chat")
    assert (demand.expected, demand.heard) == (1, 0)
    assert front.gateways.age_s() is None


async def test_an_address_of_the_sixth_version_is_put_in_brackets(talkers: Talkers) -> None:
    front = Front(talkers, "gateways:81", gateways=("fd00::1",))
    await front.gateways.find()
    assert front.gateways.hosts == ("[fd00::1]:81",)
    await front.gateways.close()


async def test_localhost_is_one_gateway_and_not_two() -> None:
    assert await resolve("localhost", 80) == ("127.0.0.1",)


async def test_a_held_request_rings_the_bell_and_a_served_one_does_not(talkers: Talkers) -> None:
    front = Front(talkers, "gateways:81", gateways=("10.0.0.1",))
    await front.gateways.find()
    talkers["10.0.0.1:81"].say(demand_report(queued=4, in_flight=9))
    await eventually(lambda: front.gateways.reporting == 1)
    assert front.rung == 0
    talkers["10.0.0.1:81"].say(demand_report(queued=4, held=4))
    await eventually(lambda: front.rung == 1)
    await front.gateways.close()


def endpoints(*names: str, service: str = "default/chat", host: str = "10.1.0.1") -> ServiceEndpoints:
    rows = (Endpoint(name, "main", "stable", "r", host, 90 + n, True) for n, name in enumerate(names))
    return ServiceEndpoints(ObjectKey.parse(service), tuple(rows))


async def test_workers_are_heard_by_service(talkers: Talkers) -> None:
    workers = WorkerLoads(talkers.link())
    silent, other = talkers["10.1.0.1:91"], talkers["10.1.0.2:90"]
    workers.follow([endpoints("main-1", "main-2"), endpoints("other-1", service="default/other", host="10.1.0.2")])
    talkers["10.1.0.1:90"].say(load_report("main-1"))
    await eventually(lambda: bool(workers.loads("default/chat")))
    assert set(workers.loads("default/chat")) == {"main-1"}
    assert workers.loads("default/other") == {}
    assert len(silent.readers) == len(other.readers) == 1
    talkers.clock.advance(13)
    assert workers.loads("default/chat") == {}
    await workers.close()


async def test_a_worker_is_believed_of_its_own_service_and_by_the_name_it_is_listed_under(talkers: Talkers) -> None:
    heard: list[tuple[str, str]] = []
    workers = WorkerLoads(talkers.link(), lambda service, worker, _: heard.append((service, worker)))
    workers.follow([endpoints("main-1", "main-2")])
    talkers["10.1.0.1:90"].say(load_report("liar", service="default/other", engine_restarts=1))
    talkers["10.1.0.1:91"].say(load_report("liar"))
    await eventually(lambda: bool(heard))

    def opened_again() -> bool:
        talkers.clock.advance(0.01)
        return len(talkers["10.1.0.1:90"].readers) == 2

    await eventually(opened_again)
    assert heard == [("default/chat", "main-2")]
    loads = workers.loads("default/chat")
    assert {name: load.worker for name, load in loads.items()} == {"main-2": "main-2"}
    await workers.close()


def test_a_report_is_reduced_to_what_policies_read() -> None:
    report = load_report(
        running=3,
        waiting={RequestClass.INTERACTIVE: 2, RequestClass.BATCH: 5},
        queued_tokens={RequestClass.INTERACTIVE: 800, RequestClass.BATCH: 200},
    )
    load = load_of("main-1", report)
    assert load is not None
    assert (load.running, load.waiting, load.queued_tokens, load.kv_tokens) == (3, 7, 1000, 64_000)
    assert load.kv_used == pytest.approx(0.1)


@pytest.mark.parametrize(
    "changes",
    [
        {"state": WorkerState.STARTING},
        {"state": WorkerState.DRAINING},
        {"state": WorkerState.FAILED},
        {"kv": KVLoad(page_tokens=64, total=0, free=0)},
    ],
)
def test_a_worker_that_does_not_serve_has_no_load(changes: dict[str, Any]) -> None:
    assert load_of("main-1", load_report(**changes)) is None


def test_a_load_tells_what_waits_by_class() -> None:
    report = load_report(waiting={RequestClass.OFFLINE: 5, RequestClass.BATCH: 0}, queued_tokens={"offline": 700})
    load = load_of("main-1", report)
    assert load is not None
    assert load.by_class == ((RequestClass.OFFLINE, 5, 700),)
