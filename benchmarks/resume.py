"""Kill -9 one of three workers under 200 streams, again and again, and look at what the clients got.

Emulated workers, whose tokens depend on seed and position alone. Before all one of them is asked without a gateway, and
what its engine says of ids and positions is written down; these ids, in words, are what every client must read: in an
undisturbed run, and in those with a kill. Gateway and clients are processes of their own. Each kill waits until the
streams have come so far; where those of the worker that dies are just then, the gateway tells. The worker is replaced
for the next kill.

A gap is a client's longest silence. The bar is for what is more than the prefill: the prompts and answers so far of all
streams that were lost together have to be computed again by those that are left, and by the workers' own step time that
takes so long. Known hole: between a last token and `[DONE]` lies less than a packet, which a kill rarely meets;
`tests/gateway/test_resumed_streams.py` cuts there each time.
"""

import asyncio
import json
import multiprocessing
import re
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from benchmarks.harness import Bar, Measured, Row, main, quantile
from tests.gateway.replicas import EMULATED, Replica
from tests.gateway.stand import Stand, gateway, plain_client
from tokenizers import Tokenizer

from paceline_core.auth import new_signing_key
from paceline_core.kube import Endpoint
from paceline_core.wire import StepTime
from paceline_gateway.request.machine import RequestMachine
from paceline_gateway.routing.worker import STEP_TOKENS
from paceline_workers import demo

STREAMS, QUICK_STREAMS = 200, 60
TOKENS, QUICK_TOKENS = 100, 40
WORKERS = 3
GAP_S = 2.0
SHARES = (0.0, 0.0, 0.001, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99)
"""How much of all tokens has come when a worker is killed; 0: the requests have only just been sent."""
QUICK_SHARES = (0.0, 0.01, 0.3, 0.99)
PHASES = ("queue", "prefill", "first token", "between")
TOGETHER = 50
LIMIT_S = 300.0
_PIECE = re.compile(r"^: p (\d+) ([\d,]+)", re.MULTILINE)
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
    def prompt(self) -> int:
        """Prompt tokens as they were counted for it."""
        return int(self.body.rpartition(b'"prompt_tokens":')[2].split(b",")[0] or 0)

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

    def add(self, got: Got, right: Sequence[str]) -> None:
        """One stream beside what engines say to it."""
        words = got.words
        self.broken += not got.whole
        self.lost += max(len(right) - len(words), 0)
        self.doubled += max(len(words) - len(right), 0)
        self.different += words != list(right)
        self.miscounted += got.usage != len(right)

    def add_all(self, other: "Count") -> None:
        """Those of another run."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


@dataclass(slots=True)
class Gaps:
    """Silences, and what they are beyond the prefill that nobody can spare."""

    whole: list[float] = field(default_factory=list)
    beyond: list[float] = field(default_factory=list)

    def add(self, gaps: Sequence[float], prefill_s: float) -> None:
        """Those of one kill."""
        self.whole += gaps
        self.beyond += [max(gap - prefill_s, 0.0) for gap in gaps]


class Crowd:
    """All streams of one round."""

    def __init__(self, port: int, key: str, streams: int, tokens: int) -> None:
        self._port, self._key = port, key
        self._tokens = tokens
        self.got = [Got() for _ in range(streams)]
        self.seen = 0

    @property
    def prompt(self) -> float:
        """Prompt tokens of a stream, their mean."""
        return statistics.mean(got.prompt for got in self.got)

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
        body = json.dumps(_asked(number, self._tokens)).encode()
        head = f"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\nauthorization: Bearer {self._key}\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def _asked(number: int, tokens: int) -> dict[str, Any]:
    """One stream's request."""
    asked = {"model": "chat", "stream": True, "max_tokens": tokens, "ignore_eos": True, "seed": number}
    question = [{"role": "user", "content": f"stream {number} " * 40}]
    return asked | {"stream_options": {"include_usage": True}, "messages": question}


class Gateway:
    """The gateway's process, and the cluster that it sees."""

    def __init__(self, signing_key: bytes) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_gateway, args=(theirs, signing_key), daemon=True)
        self._process.start()
        self.port, self.key = self._pipe.recv()

    def serve(self, workers: Sequence[Replica]) -> None:
        """These are the workers now; waits until they are known to be ready."""
        self._pipe.send([worker.endpoint for worker in workers])
        self._pipe.recv()

    def phases(self, worker: str) -> dict[str, int]:
        """Where requests are now: how many wait, and of those at this worker, how many have come how far."""
        self._pipe.send(worker)
        found: dict[str, int] = self._pipe.recv()
        return found

    def end(self) -> float:
        """How many times a stream went on at another worker; the process ends."""
        self._pipe.send(None)
        resumed: float = self._pipe.recv()
        self._process.join()
        return resumed


def _gateway(pipe: Connection, signing_key: bytes) -> None:
    uvloop.run(_serve(pipe, signing_key))


async def _serve(pipe: Connection, signing_key: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        async with gateway(Path(folder), signing_key=signing_key) as stand:
            pipe.send((stand.port, stand.key))
            while (asked := await asyncio.to_thread(pipe.recv)) is not None:
                pipe.send(_phases(stand, asked) if isinstance(asked, str) else await _replace(stand, asked))
            pipe.send(await stand.metric("paceline_stream_resumed_total"))


def _phases(stand: Stand, worker: str) -> dict[str, int]:
    return Counter(
        _phase(call.machine) for call in stand.calls if call.machine.waiting or call.machine.worker == worker
    )


def _phase(life: RequestMachine) -> str:
    if life.waiting:
        return "queue"
    if not life.begun:
        return "prefill"
    return "first token" if life.meter.output <= 1 else "between"


async def _replace(stand: Stand, endpoints: Sequence[Endpoint]) -> bool:
    await stand.serve(endpoints)
    return True


def measure(quick: bool) -> Measured:
    """Rows, and each kill."""
    signing_key = new_signing_key()
    front = Gateway(signing_key)
    with tempfile.TemporaryDirectory() as folder:
        fleet = [_worker(Path(folder), f"w{index}", signing_key) for index in range(WORKERS)]
        try:
            return _rounds(front, fleet, partial(_worker, Path(folder), signing_key=signing_key), quick=quick)
        finally:
            for replica in fleet:
                replica.process.end()


def _worker(folder: Path, name: str, signing_key: bytes) -> Replica:
    return Replica(folder / name, name, signing_key, engine=EMULATED)


def _rounds(front: Gateway, fleet: list[Replica], new: Callable[[str], Replica], *, quick: bool) -> Measured:
    size = (QUICK_STREAMS, QUICK_TOKENS) if quick else (STREAMS, TOKENS)
    _ready(front, fleet)
    right, token_s = uvloop.run(_recorded(fleet[0], *size)), _token_s(fleet[0].load().step_time)
    undisturbed = Crowd(front.port, front.key, *size)
    uvloop.run(undisturbed.run())
    before, count, gaps, kills = _counted(undisturbed, right), Count(), Gaps(), list[dict[str, Any]]()
    if before != Count():
        raise RuntimeError(f"the undisturbed run is not whole: {before}")
    for share in QUICK_SHARES if quick else SHARES:
        crowd = Crowd(front.port, front.key, *size)
        phases = uvloop.run(_killed(front, crowd, fleet[0], share))
        count.add_all(_counted(crowd, right))
        lost = sum(phases.values()) - phases.get("queue", 0)
        prefill_s = token_s * lost * (crowd.prompt + share * size[1]) / (WORKERS - 1)
        longest = sorted((got.gap for got in crowd.got), reverse=True)[: size[0] // WORKERS]
        gaps.add(longest, prefill_s)
        kills.append({"at": share, "phases": phases, "longest_gap_s": longest[0], "prefill_s": prefill_s})
        fleet[0].process.end()
        fleet.append(new(f"after-{len(kills)}"))
        del fleet[0]
        _ready(front, fleet)
    details = {"streams": size[0], "tokens": size[1], "kills": kills, "resumed": front.end()}
    details["undisturbed_gap_s"] = statistics.median(got.gap for got in undisturbed.got)
    return _rows(count, gaps, kills, quick=quick), details


def _token_s(step: StepTime) -> float:
    """Seconds of a prompt's token in a full step."""
    return step.prefill + step.base / STEP_TOKENS


async def _recorded(worker: Replica, streams: int, tokens: int) -> list[list[str]]:
    """What its engine says to each stream, asked without a gateway: all ids by their positions, in words."""
    tokenizer, few = Tokenizer.from_file(str(demo.FOLDER / "tokenizer.json")), asyncio.Semaphore(TOGETHER)
    async with plain_client(base_url=worker.process.url, headers=worker.gateway_headers) as client:

        async def stream(number: int) -> list[str]:
            async with few:
                answer = await client.post("/v1/chat/completions", json=_asked(number, tokens), timeout=LIMIT_S)
            ids = dict[int, int]()
            for position, listed in _PIECE.findall(answer.raise_for_status().text):
                ids |= {int(position) + offset: int(token) for offset, token in enumerate(listed.split(","))}
            if list(ids) != list(range(tokens)):
                raise RuntimeError(f"a worker has not told all its tokens: {sorted(ids)}")
            return str(tokenizer.decode(list(ids.values()))).split()

        return await asyncio.gather(*(stream(number) for number in range(streams)))


def _counted(crowd: Crowd, right: Sequence[Sequence[str]]) -> Count:
    count = Count()
    for got, words in zip(crowd.got, right, strict=True):
        count.add(got, words)
    return count


def _ready(front: Gateway, fleet: Sequence[Replica]) -> None:
    for replica in fleet:
        replica.process.ready()
    front.serve(fleet)


async def _killed(front: Gateway, crowd: Crowd, victim: Replica, share: float) -> dict[str, int]:
    """Where requests were when the worker was killed."""
    running = asyncio.create_task(crowd.run())
    await crowd.far(share, running)
    phases: dict[str, int] = {}
    while not (phases or running.done()):
        await asyncio.sleep(0)
        phases = front.phases(victim.name)
    victim.kill()
    await running
    return phases


def _rows(count: Count, gaps: Gaps, kills: Sequence[dict[str, Any]], *, quick: bool) -> list[Row]:
    none, all_met = Bar(0), None if quick else Bar(len(PHASES), at_least=True)
    met = set().union(*(kill["phases"] for kill in kills))
    return [
        Row("worker processes killed", len(kills), ""),
        Row("phases of requests that a kill has met", len(met), f"of {len(PHASES)}", bar=all_met),
        Row("streams broken", count.broken, "", bar=none),
        Row("tokens lost", count.lost, "", bar=none),
        Row("tokens doubled", count.doubled, "", bar=none),
        Row("streams whose text differs from the engines' ids", count.different, "", bar=none),
        Row("streams whose usage differs", count.miscounted, "", bar=none),
        Row("longest silence of the longest third of streams, median", statistics.median(gaps.whole), "s"),
        Row("the same, p99", quantile(gaps.whole, 0.99), "s"),
        Row("the same, p99, beyond the prefill of what was lost", quantile(gaps.beyond, 0.99), "s", bar=Bar(GAP_S)),
    ]


if __name__ == "__main__":
    main("resume", measure)
