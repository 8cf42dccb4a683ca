"""What breaks at each moment of a request has one defined answer, and leaves nothing behind in the gateway's books."""

import asyncio
import json
from pathlib import Path

import pytest
from tests.gateway import manifests
from tests.gateway.books import balanced
from tests.gateway.conftest import MakeWorker
from tests.gateway.redis_server import redis_server
from tests.gateway.stand import CHAT, STREAM, Stand, gateway, until
from tests.gateway.test_gateway_http_edges import raw, request
from tests.gateway.test_worker_faults import WHOLE_TEXT, text_of
from tests.gateway.worker_double import Script, WorkerDouble, as_sse

from paceline_gateway.config import Quota

pytestmark = pytest.mark.real
LIMITS = {"concurrency": 100, "outputTokensPerMinute": 10_000_000}
TOKENS = ("Time", " to", " first", " token")


async def limited(stand: Stand) -> None:
    """Give the tenant limits, so that there is something to reserve."""
    stand.cluster.put(manifests.tenant(limits=LIMITS))
    await until(lambda: bool(stand.process.registry.snapshot.tenants["team"].concurrency))


PHASES: dict[str, Script] = {
    "before it has answered": Script(stall_after=0),
    "between head and first token": Script(delay_s=1000),
    "at the first token": Script(stall_after=1),
    "in the middle": Script(stall_after=2),
    "behind the last token": Script(stall_after=len(TOKENS)),
    "while it computes a whole answer": Script(stall_after=0),
    "within a whole answer": Script(raw=b'HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{"id":', hang=True),
}


@pytest.mark.parametrize("phase", PHASES)
async def test_a_worker_killed_at_each_phase_costs_nobody_anything(
    stand: Stand, make_worker: MakeWorker, phase: str
) -> None:
    first, second = await make_worker("first"), await make_worker("second")
    await limited(stand)
    first.script = lambda _: PHASES[phase]
    stand.work(first)
    await stand.ready()
    body = CHAT | {"stream": "whole" not in phase}
    posted = asyncio.create_task(stand.client.post("/v1/chat/completions", json=body))
    await until(lambda: bool(first.seen))
    await until(lambda: _told(stand) == (PHASES[phase].stall_after or 0))
    stand.work(first, second)
    await stand.ready(2)
    await first.stop()
    assert text_of(await posted) == WHOLE_TEXT
    await balanced(stand, {"ok": 1})


def _told(stand: Stand) -> int:
    (call,) = stand.calls
    return call.machine.meter.output


async def test_a_worker_killed_between_done_and_the_end_of_its_answer_is_not_missed(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(raw=_chunked(as_sse(TOKENS)))
    await limited(stand)
    stand.work(worker)
    assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == WHOLE_TEXT
    await balanced(stand, {"ok": 1})


async def test_a_worker_killed_while_requests_wait_for_it_leaves_them_queued(
    stand: Stand, make_worker: MakeWorker
) -> None:
    worker = await make_worker(slots=1)
    worker.script = lambda _: Script(stall_after=0)
    await limited(stand)
    stand.work(worker)
    await stand.ready()
    posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(4)]
    await until(lambda: stand.process.requests.open == 4 and len(worker.seen) == 1)
    await worker.stop()
    stand.work(await make_worker("next"))
    assert [text_of(response) for response in await asyncio.gather(*posts)] == [WHOLE_TEXT] * 4
    await balanced(stand, {"ok": 4})


SSE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
_WHOLE = as_sse(TOKENS)
_PART = as_sse(TOKENS[:2])[: -len(b"data: [DONE]\n\n")]


def _chunked(*pieces: bytes) -> bytes:
    """A head and chunks, without the last one that says that there are no more."""
    return SSE + b"transfer-encoding: chunked\r\n\r\n" + b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces)


def _sized(size: int, body: bytes) -> bytes:
    return SSE + b"content-length: %d\r\n\r\n" % size + body


LIES: dict[str, tuple[bytes, str]] = {
    "shorter than said, behind its end": (_sized(len(_WHOLE) + 10, _WHOLE), "ok"),
    "shorter than said": (_sized(len(_PART) + 10, _PART), "stream_error"),
    "longer than said": (
        _sized(len(_PART), _PART + b'data: {"choices":[{"delta":{"content":"more"}}]}'),
        "stream_error",
    ),
    "longer than said, behind its end": (_sized(len(_WHOLE), _WHOLE + b"data: more\n\n"), "ok"),
    "no length": (SSE + b"\r\n" + _WHOLE, "ok"),
    "no length, and no end": (SSE + b"\r\n" + _PART, "stream_error"),
    "a chunk that is cut": (_chunked(_PART) + b"ff\r\ndata: {", "stream_error"),
    "a chunk longer than said": (_chunked(_PART) + b"1\r\nabc\r\n", "stream_error"),
    "a chunk without a size": (_chunked(_PART) + b"zz\r\n\r\n", "stream_error"),
    "bytes behind the last chunk": (_chunked(_WHOLE) + b"0\r\n\r\nmore", "ok"),
    "another answer behind the last chunk": (_chunked(_WHOLE) + b"0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", "ok"),
    "two lengths": (SSE + b"content-length: 5\r\n" + _sized(7, _WHOLE)[len(SSE) :], "upstream_error"),
    "a length and chunks": (SSE + b"content-length: 5\r\n" + _chunked(_WHOLE)[len(SSE) :], "upstream_error"),
    "a length that is no number": (SSE + b"content-length: 5x\r\n\r\n" + _WHOLE, "upstream_error"),
}


@pytest.mark.parametrize("name", LIES)
async def test_a_stream_whose_length_is_a_lie_has_a_defined_end(
    stand: Stand, make_worker: MakeWorker, name: str
) -> None:
    lie, outcome = LIES[name]
    worker = await make_worker()
    worker.script = lambda _: Script(raw=lie)
    await limited(stand)
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=STREAM)
    if outcome == "ok":
        assert text_of(response) == WHOLE_TEXT
    elif outcome == "stream_error":
        assert response.status_code == 200
        assert "more" not in response.text
        assert json.loads(response.text.split("\n\n")[-3][len("data: ") :])["error"]["code"] == "stream_lost"
        assert response.text.endswith("data: [DONE]\n\n")
    else:
        assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_error")
    await balanced(stand, {outcome: 1})
    assert not any(stand.process.requests.pool._idle.values()), "a connection of which nobody knows what comes next"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_worker_that_writes_byte_by_byte_is_read_like_any(
    stand: Stand, make_worker: MakeWorker, stream: bool
) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(dribble=True)
    await limited(stand)
    stand.work(worker)
    assert text_of(await stand.client.post("/v1/chat/completions", json=CHAT | {"stream": stream})) == WHOLE_TEXT
    await balanced(stand, {"ok": 1})


async def test_a_pipeline_whose_client_leaves_is_forgotten_whole(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    worker.script = lambda _: Script(stall_after=2)
    await limited(stand)
    stand.work(worker)
    async with raw(stand) as client:
        await client.send(request(stand, STREAM) * 5)
        await client.reader.readuntil(b'"content":" to"')
    await balanced(stand, {"cancelled": 1})
    await until(worker.seen[0].closed.is_set)


class Blackhole:
    """A way to a worker that can vanish: from then on nothing passes, and nobody is told."""

    def __init__(self, worker: WorkerDouble) -> None:
        self._worker = worker
        self._open: set[asyncio.StreamWriter] = set()
        self.dropping = False

    async def start(self) -> "Blackhole":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._worker.port = self._server.sockets[0].getsockname()[1]
        return self

    async def stop(self) -> None:
        self._server.close()
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, ours = await asyncio.open_connection("127.0.0.1", self._real)
        self._open |= {writer, ours}
        await asyncio.gather(self._pass(reader, ours), self._pass(theirs, writer), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            if not self.dropping:
                writer.write(data)
        if not self.dropping:
            writer.close()

    @classmethod
    async def before(cls, worker: WorkerDouble) -> "Blackhole":
        """In the way to this worker from now on."""
        made = cls(worker)
        made._real = worker.port
        return await made.start()

    _real = 0


async def test_a_host_that_vanishes_silently_delays_its_streams_by_the_silence_timeout(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    """Half-open: what is in flight goes on elsewhere, and nothing new is sent there."""
    async with gateway(tmp_path, {"stream_idle_timeout_s": 1.0, "load_silence_s": 1.5}) as stand:
        worker, other = await make_worker("gone"), await make_worker("there")
        hole = await Blackhole.before(worker)
        worker.script = lambda _: Script(stall_after=2)
        await limited(stand)
        stand.work(worker)
        await stand.ready()
        posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(5)]
        await until(lambda: sum(c.machine.meter.output for c in stand.calls) == 10)
        stand.work(worker, other)
        await stand.ready(2)
        hole.dropping = True
        assert [text_of(response) for response in await asyncio.gather(*posts)] == [WHOLE_TEXT] * 5
        await stand.ready(1)
        assert text_of(await stand.client.post("/v1/chat/completions", json=STREAM)) == WHOLE_TEXT
        assert len(other.seen) == 6
        await balanced(stand, {"ok": 6})
        await hole.stop()


async def test_a_half_open_persistent_connection_times_out(tmp_path: Path, make_worker: MakeWorker) -> None:
    async with gateway(tmp_path, {"first_token_s": 1.5, "answer_s": 1.5}) as stand:
        worker = await make_worker()
        hole = await Blackhole.before(worker)
        await limited(stand)
        stand.work(worker)
        assert text_of(await stand.client.post("/v1/chat/completions", json=CHAT)) == WHOLE_TEXT
        hole.dropping = True
        for body in (CHAT, STREAM):
            response = await stand.client.post("/v1/chat/completions", json=body)
            assert (response.status_code, response.json()["error"]["code"]) == (504, "upstream_timeout")
        await balanced(stand, {"ok": 1, "timeout": 2})
        await hole.stop()


async def test_a_redis_killed_under_open_streams_gives_their_slots_back(
    tmp_path: Path, make_worker: MakeWorker
) -> None:
    """Eight at once are allowed, and eight are open when the counters die; they come back empty, and eight may be."""
    async with (
        redis_server(tmp_path) as server,
        gateway(tmp_path, quota=Quota(redis=server.config, wait_s=4.0)) as stand,
    ):
        worker = await make_worker()
        stand.cluster.put(manifests.tenant(limits={"concurrency": 8}))
        stand.work(worker)
        await until(lambda: stand.process.registry.snapshot.tenants["team"].concurrency == 8)
        for round_ in range(2):
            go_on = asyncio.Event()
            worker.script = lambda _, event=go_on: Script(until=event)  # type: ignore[misc]
            posts = [asyncio.create_task(stand.client.post("/v1/chat/completions", json=STREAM)) for _ in range(8)]
            await until(lambda most=8 * (round_ + 1): len(worker.seen) == most)  # type: ignore[misc]
            refused = await stand.client.post("/v1/chat/completions", json=STREAM)
            assert (refused.status_code, refused.json()["error"]["code"]) == (429, "rate_limit_exceeded")
            if not round_:
                await server.kill()
            go_on.set()
            assert [text_of(response) for response in await asyncio.gather(*posts)] == [WHOLE_TEXT] * 8
            if not round_:
                await server.start()
                await until(lambda: not stand.process.requests.quotas.away)
        await balanced(stand, {"ok": 16, "quota": 2})
