"""The whole worker over HTTP against its own engine offline: the engine on core 0, API process and client on core 1.

32 streams arrive by one Poisson process, each with the same 1,024 tokens and 32 of its own, and ask for 128 more.
Offline the same requests reach the same loop at the same times without sockets, on core 0 as well. Both have seen the
shared tokens once before, as a service has its system prompt.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil
from benchmarks.engine.model import VOCAB
from benchmarks.engine.peers import OURS, engine
from benchmarks.engine.worker import API_CORE, ENGINE_CORE, LIMIT_S, counted, worker
from benchmarks.harness import Bar, Measured, Row

STREAMS, SHARED, OWN, NEW = 32, 1024, 32, 128
MEAN_GAP_S = 0.1
LOOKED_UP = "paceline_prefix_lookup_tokens_total"
HIT = "paceline_prefix_hit_tokens_total"


@dataclass(frozen=True, slots=True)
class Load:
    """Prompts and the seconds at which they come."""

    prompts: list[list[int]]
    arrivals: list[float]

    @classmethod
    def of(cls, seed: int) -> "Load":
        """The same shared tokens for every seed, and everything else new."""
        shared = random.Random("shared").choices(range(VOCAB), k=SHARED)
        chance = random.Random(seed)
        arrivals, now = [], 0.0
        for _ in range(STREAMS):
            arrivals.append(now)
            now += chance.expovariate(1 / MEAN_GAP_S)
        return cls([shared + chance.choices(range(VOCAB), k=OWN) for _ in range(STREAMS)], arrivals)

    @property
    def ideal(self) -> float:
        """The share of prompt tokens that a cache which has seen the shared ones finds."""
        return SHARED / (SHARED + OWN)


@dataclass(frozen=True, slots=True)
class Served:
    """One load over HTTP: tokens a second, the share of prompt tokens found cached, the API's CPU seconds a token."""

    speed: float
    hits: float
    api_cpu_s: float


def measure(folder: Path, *, quick: bool) -> Measured:
    """Rows of both, load by load in turn."""
    os.sched_setaffinity(0, {API_CORE})
    ours, offline = [], []
    with worker(folder, folder) as (url, api), engine(OURS, "run_paceline", folder, 1, core=ENGINE_CORE) as alone:
        warm = Load.of(-1).prompts[:1]
        alone.run(warm, 1)
        asyncio.run(_all(url, warm, [0.0], 1))
        for seed in range(1 if quick else 3):
            load = Load.of(seed)
            run = alone.run(load.prompts, NEW, arrivals=load.arrivals)
            offline.append(STREAMS * NEW / (run.first_s + run.rest_s))
            ours.append(_serve(url, api, load))
    os.sched_setaffinity(0, range(os.cpu_count() or 1))
    return _rows(ours, offline), {"offline": offline, "over_http": [vars_of(one) for one in ours]}


def vars_of(one: Served) -> dict[str, float]:
    """As it is written."""
    return {"tokens_per_s": one.speed, "hits": one.hits, "api_cpu_s_per_token": one.api_cpu_s}


def _rows(ours: Sequence[Served], offline: Sequence[float]) -> list[Row]:
    ratios = [one.speed / other for one, other in zip(ours, offline, strict=True)]
    hits = [one.hits / Load.of(0).ideal for one in ours]
    return [
        Row(
            "served over HTTP, and offline on one core", median(one.speed for one in ours), "tokens/s", median(offline)
        ),
        Row(
            "served over HTTP over offline",
            median(ratios),
            "ratio",
            spread=max(ratios) - min(ratios),
            bar=Bar(0.9, at_least=True),
        ),
        Row("prefix hits over the ideal", median(hits), "ratio", bar=Bar(0.95, at_least=True)),
        Row("API process, CPU per streamed token", median(one.api_cpu_s for one in ours) * 1e6, "us"),
    ]


def _serve(url: str, api: psutil.Process, load: Load) -> Served:
    before, cpu = _counts(url), sum(api.cpu_times()[:2])
    seconds, tokens = asyncio.run(_all(url, load.prompts, load.arrivals, NEW))
    after = _settled(url, before[0] + sum(map(len, load.prompts)))
    looked_up, hit = (new - old for new, old in zip(after, before, strict=True))
    return Served(tokens / seconds, hit / looked_up, (sum(api.cpu_times()[:2]) - cpu) / tokens)


def _settled(url: str, looked_up: float) -> tuple[float, float]:
    """The counts, once the engine has told those of all requests; it does with its next heartbeat."""
    end = time.monotonic() + LIMIT_S
    while (counts := _counts(url))[0] < looked_up:
        if time.monotonic() > end:
            raise TimeoutError(f"{LOOKED_UP} stays at {counts[0]:.0f}, below {looked_up:.0f}")
        time.sleep(0.1)
    return counts


def _counts(url: str) -> tuple[float, float]:
    return counted(url, LOOKED_UP), counted(url, HIT)


async def _all(url: str, prompts: Sequence[list[int]], arrivals: Sequence[float], new: int) -> tuple[float, int]:
    """Seconds from the first arrival to the last token, and the tokens of all streams."""
    begin = time.perf_counter()
    streams = [_stream(url, prompt, begin + at, new) for prompt, at in zip(prompts, arrivals, strict=True)]
    async with asyncio.timeout(LIMIT_S):
        counts = await asyncio.gather(*streams)
    return time.perf_counter() - begin, sum(counts)


async def _stream(url: str, prompt: list[int], at: float, new: int) -> int:
    """The tokens of one stream, as its last event counts them. Plain sockets: the client shares the API's core."""
    body = json.dumps(_request(prompt, new)).encode()
    await asyncio.sleep(at - time.perf_counter())
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), limit=1 << 22)
    head = f"POST /v1/completions HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\ncontent-length: "
    writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
    told = await reader.readuntil(b"[DONE]")
    writer.close()
    event = next(line for line in reversed(told.splitlines()) if b'"completion_tokens"' in line)
    return int(json.loads(event.removeprefix(b"data: "))["usage"]["completion_tokens"])


def _request(prompt: list[int], new: int) -> dict[str, Any]:
    options = {"stream": True, "stream_options": {"include_usage": True}, "temperature": 0, "ignore_eos": True}
    return {"model": "random", "prompt": prompt, "max_tokens": new, **options}
