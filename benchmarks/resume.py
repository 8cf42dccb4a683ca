"""Kill -9 one of three workers under 200 streams, again and again, and look at what the clients got.

Emulated workers, whose words depend on seed and position alone, so that the undisturbed run says what each client must
read. Gateway and clients are processes of their own; each kill waits until the streams have come so far: right after
dispatch, in the prefill, at the first tokens, anywhere between, and right before the end. The worker is replaced for
the next kill.
"""

import asyncio
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from benchmarks.harness import Bar, Measured, Row, main, quantile
from tests.gateway.replicas import EMULATED, Replica
from tests.gateway.stand import Stand, gateway

from paceline_core.auth import new_hop_key
from paceline_core.kube import Endpoint

STREAMS, QUICK_STREAMS = 200, 60
TOKENS, QUICK_TOKENS = 100, 40
WORKERS = 3
GAP_S = 2.0
SHARES = (0.0, 0.001, 0.01, 0.1, 0.25, 0.4, 0.55, 0.7, 0.85, 0.97)
"""How much of all tokens has come when a worker is killed; 0: the requests have only just been sent."""
QUICK_SHARES = (0.0, 0.3, 0.97)
_CONTENT = re.compile(rb'"content":"([^"]*)"')


@dataclass(slots=True)
class Got:
    """What one client read, and when its tokens came."""

    body: bytes = b""
    times: list[float] = field(default_factory=list)

    @property
    def words(self) -> list[str]:
        """Each word is a token."""
        events = [json.loads(line[6:]) for line in self.body.split(b"\n") if line.startswith(b"data: {")]
        return "".join(c["delta"].get("content", "") for e in events for c in e.get("choices", ())).split()

    @property
    def whole(self) -> bool:
        """It ended once, without an error."""
        return self.body.count(b"data: [DONE]") == 1 and b'"error"' not in self.body

    @property
    def usage(self) -> int:
        """Output tokens as they were counted for it."""
        return int(self.body.rpartition(b'"completion_tokens":')[2].split(b",")[0] or -1)

    @property
    def gap(self) -> float:
        """The longest silence between two of its tokens."""
        return max((b - a for a, b in zip(self.times, self.times[1:], strict=False)), default=0.0)


@dataclass(slots=True)
class Count:
    """What is wrong with the streams of all kills; each should be 0."""

    broken: int = 0
    lost: int = 0
    doubled: int = 0
    different: int = 0
    miscounted: int = 0

    def add(self, got: Got, expected: Got) -> None:
        """One stream beside its undisturbed twin."""
        words, right = got.words, expected.words
        self.broken += not got.whole
        self.lost += max(len(right) - len(words), 0)
        self.doubled += max(len(words) - len(right), 0)
        self.different += words != right
        self.miscounted += got.usage != expected.usage


class Crowd:
    """All streams of one round."""

    def __init__(self, port: int, key: str, streams: int, tokens: int) -> None:
        self._port, self._key = port, key
        self._tokens = tokens
        self.got = [Got() for _ in range(streams)]
        self.seen = 0

    async def run(self) -> None:
        """Until the last has ended."""
        await asyncio.gather(*(self._stream(number, got) for number, got in enumerate(self.got)))

    async def far(self, share: float, running: asyncio.Task[None]) -> None:
        """Wait until this share of all tokens has come."""
        while self.seen < share * len(self.got) * self._tokens:
            if running.done():
                raise RuntimeError("the streams ended before a worker was killed")
            await asyncio.sleep(0.001)

    async def _stream(self, number: int, got: Got) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._request(number))
        while data := await reader.read(1 << 16):
            got.body += data
            if words := _CONTENT.findall(data):
                got.times.append(time.monotonic())
                self.seen += sum(content.count(b" ") for content in words)  # an event of a busy worker brings several
        writer.close()
        got.body = got.body.replace(b"\r\n", b"\n")

    def _request(self, number: int) -> bytes:
        asked = {"model": "chat", "stream": True, "max_tokens": self._tokens, "ignore_eos": True, "seed": number}
        asked |= {"stream_options": {"include_usage": True}}
        body = json.dumps(asked | {"messages": [{"role": "user", "content": f"stream {number} " * 20}]}).encode()
        head = f"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\nauthorization: Bearer {self._key}\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


class Gateway:
    """The gateway's process, and the cluster that it sees."""

    def __init__(self, hop_key: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_gateway, args=(theirs, hop_key), daemon=True)
        self._process.start()
        self.port, self.key = self._pipe.recv()

    def serve(self, workers: Sequence[Replica]) -> None:
        """These are the workers now; waits until they are known to be ready."""
        self._pipe.send([worker.endpoint for worker in workers])
        self._pipe.recv()

    def end(self) -> float:
        """How many times a stream went on at another worker; the process ends."""
        self._pipe.send(None)
        resumed: float = self._pipe.recv()
        self._process.join()
        return resumed


def _gateway(pipe: Connection, hop_key: bytes) -> None:
    uvloop.run(_serve(pipe, hop_key))


async def _serve(pipe: Connection, hop_key: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with gateway(Path(folder), hop_key=hop_key) as stand:
            pipe.send((stand.port, stand.key))
            while (endpoints := await asyncio.to_thread(pipe.recv)) is not None:
                await _replace(stand, endpoints)
                pipe.send(True)
            pipe.send(await stand.metric("paceline_stream_resumed_total"))


async def _replace(stand: Stand, endpoints: Sequence[Endpoint]) -> None:
    stand.cluster.serve("default/chat", *endpoints)
    await stand.ready(len(endpoints))


def measure(quick: bool) -> Measured:
    """Rows, and each kill."""
    hop_key = new_hop_key()
    front = Gateway(hop_key)
    with tempfile.TemporaryDirectory() as folder:
        fleet = [Replica(Path(folder) / f"w{index}", f"w{index}", hop_key, engine=EMULATED) for index in range(WORKERS)]
        try:
            return _rounds(front, fleet, Path(folder), hop_key, quick=quick)
        finally:
            for replica in fleet:
                replica.process.end()


def _rounds(front: Gateway, fleet: list[Replica], folder: Path, hop_key: bytes, *, quick: bool) -> Measured:
    size = (QUICK_STREAMS, QUICK_TOKENS) if quick else (STREAMS, TOKENS)
    shares = QUICK_SHARES if quick else SHARES
    _ready(front, fleet)
    right = Crowd(front.port, front.key, *size)
    uvloop.run(right.run())
    if any(len(got.words) != size[1] or not got.whole for got in right.got):
        raise RuntimeError("the undisturbed run is not whole: nothing can be compared with it")
    count, gaps, kills = Count(), list[float](), list[dict[str, Any]]()
    for share in shares:
        crowd = Crowd(front.port, front.key, *size)
        uvloop.run(_killed(crowd, fleet[0], share))
        for got, expected in zip(crowd.got, right.got, strict=True):
            count.add(got, expected)
        longest = sorted((got.gap for got in crowd.got), reverse=True)[: size[0] // WORKERS]
        gaps += longest
        kills.append({"at": share, "longest_gap_s": longest[0], "broken": sum(not got.whole for got in crowd.got)})
        fleet[0].process.end()
        fleet.append(Replica(folder / f"after-{len(kills)}", f"after-{len(kills)}", hop_key, engine=EMULATED))
        del fleet[0]
        _ready(front, fleet)
    resumed = front.end()
    undisturbed = statistics.median(got.gap for got in right.got)
    details = {
        "streams": size[0],
        "tokens": size[1],
        "kills": kills,
        "resumed": resumed,
        "undisturbed_gap_s": undisturbed,
    }
    return _rows(count, gaps, len(shares)), details


def _ready(front: Gateway, fleet: Sequence[Replica]) -> None:
    for replica in fleet:
        replica.process.ready()
    front.serve(fleet)


async def _killed(crowd: Crowd, victim: Replica, share: float) -> None:
    running = asyncio.create_task(crowd.run())
    await asyncio.sleep(0.05)
    await crowd.far(share, running)
    victim.kill()
    await running


def _rows(count: Count, gaps: list[float], kills: int) -> list[Row]:
    none = Bar(0)
    return [
        Row("worker processes killed", kills, ""),
        Row("streams broken", count.broken, "", bar=none),
        Row("tokens lost", count.lost, "", bar=none),
        Row("tokens doubled", count.doubled, "", bar=none),
        Row("streams whose text differs", count.different, "", bar=none),
        Row("streams whose usage differs", count.miscounted, "", bar=none),
        Row("longest silence of the longest third of streams, median", statistics.median(gaps), "s"),
        Row("the same, p99", quantile(gaps, 0.99), "s", bar=Bar(GAP_S)),
    ]


if __name__ == "__main__":
    main("resume", measure)
