"""The neighbour: streams that run on and on while others attack, and short requests in between.

A gap is the longest time in which a stream that has begun brought nothing, a silence that is still open counted too.
Streams that break, and short requests that are refused, count by themselves. One process on the attacker's core; the
attacker yields to it.
"""

import asyncio
import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import uvloop
from benchmarks.attacks.case import Model

from paceline_workers import demo
from paceline_workers.engine.backends.emulated import Vocabulary

STREAMS = 3
TOKENS = {Model.EMULATED: 4000, Model.REAL: 1900}
WORDS = 200
"""Of the real model's vocabulary, to which its streams are held: a token without text would look like a gap."""
SHORT_S, PATIENCE_S = 0.2, 15.0
SAMPLES = 3


@dataclass(slots=True)
class Felt:
    """What the neighbour felt since it was last asked; times in seconds."""

    gap: float = 0.0
    first: float = 0.0
    pieces: int = 0
    short: int = 0
    refused: int = 0
    broken: int = 0
    complaints: list[str] = field(default_factory=list)

    def complain(self, text: str) -> None:
        """Keep one of the first complaints."""
        if len(self.complaints) < SAMPLES:
            self.complaints.append(text[:200])


class Neighbour:
    """Its streams come from one model at a time."""

    def __init__(self, port: int, key: str) -> None:
        self._port, self._key = port, key
        self._words = Vocabulary.read(demo.FOLDER).words[:WORDS]
        self._felt = Felt()
        self._last: dict[int, float] = {}
        self._model = Model.EMULATED
        self._tasks: list[asyncio.Task[None]] = []

    async def choose(self, model: Model) -> None:
        """Streams from this model; returns once all of them run. Raises RuntimeError."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._model, self._last = model, {}
        runs = [self._streams(number) for number in range(STREAMS)] + [self._shorts()]
        self._tasks = [asyncio.create_task(run) for run in runs]
        if not await self.flows():
            raise RuntimeError(f"no stream of {model} begins: {self.felt().complaints}")
        self.felt()

    async def flows(self) -> bool:
        """Whether all streams bring something again, at last after PATIENCE_S."""
        before = time.monotonic()
        while time.monotonic() < before + PATIENCE_S:
            if len(self._last) == STREAMS and min(self._last.values()) > before:
                return True
            await asyncio.sleep(0.005)
        return False

    def felt(self) -> Felt:
        """All since the last time."""
        now = time.monotonic()
        self._felt.gap = max(self._felt.gap, *(now - last for last in self._last.values()), 0.0)
        felt, self._felt = self._felt, Felt()
        return felt

    async def _streams(self, number: int) -> None:
        while True:
            try:
                await self._stream(number)
            except OSError as error:
                self._felt.broken += 1
                self._felt.complain(repr(error))
                await asyncio.sleep(0.1)

    async def _stream(self, number: int) -> None:
        asked: dict[str, object] = {"max_tokens": TOKENS[self._model], "ignore_eos": True, "stream": True}
        words = {"allowed_token_ids": self._words} if self._model is Model.REAL else {}
        reader, writer = await self._ask({**asked, **words, "seed": number})
        whole = b""
        try:
            while data := await reader.read(1 << 16):
                now = time.monotonic()
                whole = (whole + data)[-400:]
                if b'"content"' not in data:
                    continue
                if number in self._last:
                    self._felt.gap = max(self._felt.gap, now - self._last[number])
                self._last[number] = now
                self._felt.pieces += 1
        finally:
            writer.close()
        if b"[DONE]" not in whole:
            self._felt.broken += 1
            self._felt.complain(whole.decode(errors="replace"))
            await asyncio.sleep(0.05)
        else:
            self._last.pop(number, None)  # the next one's first token is no gap

    async def _shorts(self) -> None:
        while True:
            began = time.monotonic()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    reader, writer = await self._ask({"max_tokens": 2, "ignore_eos": True})
                    answer = await reader.read()
                writer.close()
            except (OSError, TimeoutError) as error:
                answer = repr(error).encode()
            self._felt.short += 1
            self._felt.first = max(self._felt.first, time.monotonic() - began)
            if b" 200 " not in answer[:20]:
                self._felt.refused += 1
                self._felt.complain(answer.decode(errors="replace"))
            await asyncio.sleep(SHORT_S)

    async def _ask(self, wanted: Mapping[str, object]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        asked = {"model": self._model, "messages": [{"role": "user", "content": "Hi"}], **wanted}
        body = json.dumps(asked).encode()
        head = f"POST /v1/chat/completions HTTP/1.0\r\nhost: x\r\nauthorization: Bearer {self._key}\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        return reader, writer


def serve(pipe: Connection, core: int, port: int, key: str) -> None:
    """A process of its own. Through the pipe comes a model to choose, "flows" or "felt"; the answer goes back."""
    os.sched_setaffinity(0, {core})
    uvloop.run(_serve(pipe, Neighbour(port, key)))


async def _serve(pipe: Connection, neighbour: Neighbour) -> None:
    while (asked := await asyncio.to_thread(pipe.recv)) is not None:
        if isinstance(asked, Model):
            await neighbour.choose(asked)
            pipe.send(None)
        else:
            pipe.send(await neighbour.flows() if asked == "flows" else neighbour.felt())
