"""How soon a worker that drains gets no more requests: from its word to the last one that a gateway sends it.

Three workers under steady load, one of which drains, refuses what still comes, and is back for the next round. It says
so on its load stream; or that stream is closed at this very moment, or falls silent, and nobody but its refusals tells.
Clients, gateway and workers share one loop, so the time between is the gateway's own.
"""

import asyncio
import tempfile
from pathlib import Path

import httpx
import uvloop
from benchmarks.harness import Bar, Measured, Row, main, median_row
from tests.gateway.crowd import whole
from tests.gateway.leaver import Leaver, Told
from tests.gateway.stand import STREAM, Stand, gateway, plain_client, until

ROUNDS, QUICK_ROUNDS = 20, 4
CLIENTS = 24
WATCH_S: dict[Told, float] = {"said": 1.5, "closed": 4.0, "silent": 4.0}
"""For how long after the mark picks are looked for."""
BARS: dict[Told, Bar] = {"said": Bar(0.25), "closed": Bar(2.0), "silent": Bar(2.0)}
NAMES: dict[Told, str] = {
    "said": "told on the load stream",
    "closed": "its load stream closed",
    "silent": "its load stream silent",
}


def measure(quick: bool) -> Measured:
    """The last pick after each mark, and how many requests failed."""
    return uvloop.run(_measure(QUICK_ROUNDS if quick else ROUNDS))


async def _measure(rounds: int) -> Measured:
    with tempfile.TemporaryDirectory() as folder:
        async with gateway(Path(folder)) as stand:
            workers = [await Leaver(f"w{number}").start() for number in range(3)]
            stand.work(*workers)
            answers, stop = list[bool](), asyncio.Event()
            crowd = asyncio.gather(*(_client(stand, answers, stop) for _ in range(CLIENTS)))
            last: dict[Told, list[float]] = {told: [] for told in BARS}
            try:
                for number in range(rounds):
                    for told in BARS:
                        last[told].append(await _round(stand, workers[number % len(workers)], told))
            finally:
                stop.set()
                await crowd
                for worker in workers:
                    await worker.stop()
    rows = [row for told, values in last.items() for row in _rows(told, values)]
    failed = Row("requests failed", answers.count(False), f"of {len(answers)}", bar=Bar(0))
    return [*rows, failed], {"seconds_to_the_last_pick": last}


def _rows(told: Told, values: list[float]) -> list[Row]:
    longest = Row("the same, longest", max(values), "s", bar=BARS[told])
    return [median_row(f"last pick after the mark, {NAMES[told]}: median", values, "s"), longest]


async def _round(stand: Stand, worker: Leaver, told: Told) -> float:
    """Seconds from the mark to the last pick, 0 if there was none."""
    await stand.ready(3)
    before = len(worker.picks)
    await until(lambda: len(worker.picks) > before + 10)  # it has its part of the load
    mark = worker.drain(told)
    await asyncio.sleep(WATCH_S[told])
    last = max(worker.picks[-1] - mark, 0.0)
    worker.come_back()
    return last


async def _client(stand: Stand, answers: list[bool], stop: asyncio.Event) -> None:
    headers, limits = {"authorization": f"Bearer {stand.key}"}, httpx.Limits(max_connections=1)
    async with plain_client(base_url=stand.client.base_url, headers=headers, limits=limits) as client:
        while not stop.is_set():
            answers.append(whole(await client.post("/v1/chat/completions", json=STREAM)))


if __name__ == "__main__":
    main("draining", measure)
