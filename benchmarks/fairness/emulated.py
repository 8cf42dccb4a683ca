"""Interactive requests beside twice as much batch as there is room for: a real gateway, two emulated workers.

Three spells, each with the same Poisson arrivals: batch alone, interactive alone, both. The gateway is a process of its
own and its access log says how long each request waited in its queue, when its first token came, and what it used. What
is left for batch is what batch alone was served less what interactive was, by tokens, output twice.
The workers pace their steps as an L4 would; the machine's own lateness is in the times to the first token. Prompts are
short: what is scarce here are slots, and a slot's time goes to output.
"""

import asyncio
import io
import json
import multiprocessing
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import uvloop
from benchmarks.harness import Bar, Measured, Row, quantile
from tests.gateway.replicas import EMULATED, replicas
from tests.gateway.stand import Stand, gateway, until

from paceline_core.auth import new_signing_key
from paceline_core.kube import Endpoint
from paceline_core.registry.enums import RequestClass
from paceline_core.telemetry import BackgroundWriter
from paceline_gateway.telemetry.metrics import LogSinks

WORKERS, SLOTS = 2, 48
SPELL_S, QUICK_SPELL_S = 25.0, 10.0
SETTLE_S = 5.0
"""At the beginning of a spell, not counted: until the slots are full."""
INTERACTIVE, BATCH, _ = RequestClass
OUTPUT = {INTERACTIVE: 16, BATCH: 48}
RATE = {INTERACTIVE: 4.0, BATCH: 72.0}
"""Requests a second. Batch: about twice what the slots can take, at some 20 tokens a second."""
WORDS = 8


@dataclass(frozen=True, slots=True)
class Answered:
    """One request as the access log has it, and when its line was written, in seconds of the gateway's clock."""

    name: str
    at: float
    wait: float
    ttft: float
    tokens: float


class Front:
    """The gateway's process."""

    def __init__(self, signing_key: bytes, endpoints: Sequence[Endpoint]) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_gateway, args=(theirs, signing_key, list(endpoints)), daemon=True)
        self._process.start()
        self.port, self.key = self._pipe.recv()

    def answered(self) -> list[Answered]:
        """What the access log says since it was last asked for."""
        self._pipe.send(True)
        found: list[Answered] = self._pipe.recv()
        return found

    def end(self) -> None:
        """Stop it."""
        self._pipe.send(None)
        self._process.join()


def emulated(quick: bool) -> Measured:
    """The rows, and what was offered and refused."""
    spell, signing_key = QUICK_SPELL_S if quick else SPELL_S, new_signing_key()
    with (
        tempfile.TemporaryDirectory() as folder,
        replicas(Path(folder), WORKERS, signing_key, engine=EMULATED | {"max_seqs": SLOTS}) as workers,
    ):
        front = Front(signing_key, [worker.endpoint for worker in workers])
        try:
            most = _spell(front, [BATCH], spell)  # before the gateway knows how many slots interactive requests need
            alone = _spell(front, [INTERACTIVE], spell)
            both = _spell(front, [INTERACTIVE, BATCH], 2 * spell)
        finally:
            front.end()
    return rows(alone, most, both), {
        name: {"answered": len(found.answers), "sent": found.sent, "longest_waits": found.longest()}
        for name, found in (("interactive alone", alone), ("batch alone", most), ("both", both))
    }


@dataclass(frozen=True, slots=True)
class Spell:
    """What was answered in it after its beginning, and how long that was."""

    answers: list[Answered]
    seconds: float
    sent: int

    def per_second(self, name: RequestClass) -> float:
        """Tokens of a class, output twice."""
        return sum(each.tokens for each in self.answers if each.name == name) / self.seconds

    def longest(self) -> list[float]:
        """The longest waits of interactive requests."""
        return sorted((each.wait for each in self.answers if each.name == INTERACTIVE), reverse=True)[:9]

    def p99(self, what: str) -> float:
        """Of interactive requests."""
        return quantile([getattr(each, what) for each in self.answers if each.name == INTERACTIVE], 0.99)


def rows(alone: Spell, most: Spell, both: Spell) -> list[Row]:
    """What is claimed, with its bars, and what it rests on."""
    left = most.per_second(BATCH) - both.per_second(INTERACTIVE)
    offered = RATE[BATCH] * (most.answers[0].tokens) / most.per_second(BATCH)
    wait, ttft = both.p99("wait"), alone.p99("ttft")
    return [
        Row("emulated: interactive p99 queue wait over uncontended p99 TTFT", wait / ttft, "", bar=Bar(0.2)),
        Row(
            "emulated: batch's share of what interactive leaves", both.per_second(BATCH) / left, "", bar=Bar(0.9, True)
        ),
        Row("emulated: interactive p99 queue wait", wait, "s", peer=ttft),
        Row("emulated: interactive p99 TTFT", both.p99("ttft"), "s", peer=ttft),
        Row("emulated: batch offered over what batch alone is served", offered, ""),
    ]


def _spell(front: Front, names: Sequence[RequestClass], seconds: float) -> Spell:
    front.answered()
    sent = uvloop.run(_offer(front, names, seconds))
    found = front.answered()
    end = max(each.at for each in found)
    kept = [each for each in found if each.at >= end - (seconds - SETTLE_S)]
    return Spell(kept, seconds - SETTLE_S, sent)


async def _offer(front: Front, names: Sequence[RequestClass], seconds: float) -> int:
    """Open loop; whoever still waits at the end leaves."""
    loop, tasks = asyncio.get_running_loop(), list[asyncio.Task[None]]()
    began = loop.time()
    arrivals = sorted((at, name) for name in names for at in _poisson(name, seconds))
    for at, name in arrivals:
        await asyncio.sleep(began + at - loop.time())
        tasks.append(asyncio.create_task(_request(front, name, len(tasks))))
    await asyncio.sleep(began + seconds - loop.time())
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return len(tasks)


def _poisson(name: RequestClass, seconds: float) -> list[float]:
    draws, at, found = random.Random(name.value), 0.0, list[float]()
    while (at := at + draws.expovariate(RATE[name])) < seconds:
        found.append(at)
    return found


async def _request(front: Front, name: RequestClass, number: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
    try:
        asked = {"model": "chat", "stream": name is INTERACTIVE, "max_tokens": OUTPUT[name], "ignore_eos": True}
        words = " ".join(f"w{number}" for _ in range(WORDS))
        body = json.dumps(asked | {"messages": [{"role": "user", "content": words}]}).encode()
        head = f"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\nauthorization: Bearer {front.key}\r\n"
        writer.write(f"{head}x-paceline-class: {name}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body)
        while await reader.read(1 << 16):
            pass
    finally:
        writer.transport.abort()


def _gateway(pipe: Connection, signing_key: bytes, endpoints: list[Endpoint]) -> None:
    uvloop.run(_serve(pipe, signing_key, endpoints))


async def _serve(pipe: Connection, signing_key: bytes, endpoints: list[Endpoint]) -> None:
    log = io.StringIO()
    with tempfile.TemporaryDirectory() as folder:
        async with gateway(Path(folder), signing_key=signing_key, outlets=LogSinks(BackgroundWriter(log))) as stand:
            await stand.serve(endpoints)
            pipe.send((stand.port, stand.key))
            while await asyncio.to_thread(pipe.recv):
                pipe.send(await _read(stand, log))


async def _read(stand: Stand, log: io.StringIO) -> list[Answered]:
    """All lines, once nothing is open any more."""
    await until(lambda: not stand.process.requests.open)
    await asyncio.sleep(1.0)  # lines are handed over a few times a second
    lines = [json.loads(line) for line in log.getvalue().splitlines()]
    log.seek(0)
    log.truncate()
    return [_answered(line) for line in lines if line.get("outcome") == "ok"]


def _answered(line: dict[str, Any]) -> Answered:
    at = datetime.fromisoformat(line["time"]).timestamp()
    ttft = line["ttft"] if line["ttft"] is not None else 0.0
    return Answered(line["class"], at, line["wait"], ttft, line["input"] + 2 * line["output"])
