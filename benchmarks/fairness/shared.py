"""Three whole gateways and one limit between them: what they let through together, and what aborted requests leave.

Real HTTP, gateways and store: a Redis of its own, or the gateway that holds the Lease. The worker answers at once, so
that limits are all that holds requests back. A tenant may use its limit and what refills from its first request to the
last that was let through; more is overshoot. What a gateway lets through while it cannot reach the counters in time is
its own share, as the tenants' `onStoreFailure: open` has it, and no part of the claim: a run that has any is void. Half
of the tenants are limited by requests, half by output tokens.
Gateways, worker and client share one process and one core: nothing here says how fast a gateway is.
"""

import asyncio
import contextlib
import json
import random
import tempfile
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvloop
from benchmarks.harness import Bar, Measured, Row
from tests.gateway import manifests
from tests.gateway.cluster_double import ClusterDouble
from tests.gateway.redis_server import redis_server
from tests.gateway.stand import Stand, gateway, until
from tests.gateway.worker_double import Script, WorkerDouble

from paceline_core.auth import new_signing_key
from paceline_core.clock import SystemClock
from paceline_gateway.config import Quota
from paceline_gateway.quota.types import SIZE

GATEWAYS = 3
TENANTS = 50
REQUESTS = ABORTS = 10_000
CONNECTIONS = 48
ANSWER = 4
"""Output tokens of every answer."""
OFFERED = 2.5
"""Times what a tenant's limit is for a minute."""
PATIENT_S = 0.05
WAIT_S = 4.0
NOTHING_LEFT = Bar(1e-6)


@dataclass(slots=True)
class Let:
    """What one tenant was let through: amounts in units of its limit, the first request's time, the last one's."""

    limit: float
    admitted: float = 0.0
    asked: int = 0
    first: float = 0.0
    last: float = 0.0

    @property
    def allowed(self) -> float:
        """By its limit, until the last."""
        return self.limit * (1 + (self.last - self.first) / 60)

    @property
    def overshoot(self) -> float:
        """Share of the limit beyond what is allowed."""
        return max(self.admitted - self.allowed, 0.0) / self.limit


@dataclass(slots=True)
class Crowd:
    """All clients of one run."""

    stands: Sequence[Stand]
    keys: Sequence[str]
    dice: random.Random
    let: list[Let] = field(default_factory=list)
    now: Any = SystemClock().monotonic
    aborted: int = 0
    reached: int = 0
    lent: int = 0

    async def ask(self, count: int) -> None:
        """So many requests over connections that are kept; tenants and gateways at random."""
        self.let = [Let(next(iter(limits(count)[tenant % 2].values()))) for tenant in range(len(self.keys))]
        left = iter(range(count))
        await asyncio.gather(*(self._connection(left, place) for place in range(CONNECTIONS)))

    async def abort(self, count: int) -> None:
        """So many requests whose client leaves at some moment, before, within or after the answer."""
        left = iter(range(count))
        await asyncio.gather(*(self._leavers(left, place) for place in range(CONNECTIONS)))

    async def _connection(self, left: Any, place: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.stands[place % len(self.stands)].port)
        for _ in left:
            tenant = self.dice.randrange(len(self.keys))
            let, began = self.let[tenant], self.now()
            let.first, let.asked = let.first or began, let.asked + 1
            writer.write(_request(self.keys[tenant], stream=False))
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
            if head.startswith(b"HTTP/1.1 200"):
                let.admitted, let.last = let.admitted + (ANSWER if tenant % 2 else 1), self.now()
            elif not head.startswith(b"HTTP/1.1 429"):
                raise RuntimeError(f"an answer that nobody expects: {head!r}")
        writer.close()

    async def _leavers(self, left: Any, place: int) -> None:
        for _ in left:
            _, writer = await asyncio.open_connection("127.0.0.1", self.stands[place % len(self.stands)].port)
            writer.write(_request(self.dice.choice(self.keys), stream=self.dice.random() < 0.5))
            await asyncio.sleep(self.dice.random() * 2 * PATIENT_S)
            writer.transport.abort()
            self.aborted += 1


def limits(count: int) -> list[dict[str, int]]:
    """Of the tenants, in turn, when so many requests are to come."""
    answers = round(count / TENANTS / OFFERED)
    return [{"requestsPerMinute": answers}, {"outputTokensPerMinute": answers * ANSWER}]


def shared(count: int) -> Measured:
    """Rows with a Redis and without one, of so many requests and as many aborts."""
    rows, details = list[Row](), dict[str, Any]()
    for name, redis in (("Redis", True), ("Lease holder", False)):
        crowd, left = uvloop.run(_run(count, redis=redis))
        worst = max(crowd.let, key=lambda let: let.overshoot)
        admitted, allowed = (
            sum(getattr(let, what) / let.limit for let in crowd.let) for what in ("admitted", "allowed")
        )
        rows += [
            Row(f"shared, {name}: largest overshoot over a tenant's limit", worst.overshoot, "", bar=Bar(0.01)),
            Row(
                f"shared, {name}: requests let through while the counters could not be reached",
                crowd.lent,
                "",
                bar=Bar(0),
            ),
            Row(f"shared, {name}: let through over what all limits allow", admitted / allowed, ""),
            Row(f"shared, {name}: tokens and requests left reserved after aborts", left, "", bar=NOTHING_LEFT),
        ]
        limited = sum(let.asked * (ANSWER if place % 2 else 1) > let.admitted for place, let in enumerate(crowd.let))
        details[name] = {"requests": count, "tenants_that_met_their_limit": limited, "aborts": crowd.aborted}
        details[name] |= {"aborts_that_reached_the_worker": crowd.reached}
    return rows, details


async def _run(count: int, *, redis: bool) -> tuple[Crowd, float]:
    with tempfile.TemporaryDirectory() as folder:
        async with _gateways(Path(folder), redis=redis) as stands:
            worker = await WorkerDouble(slots=1024).start()
            for stand in stands:
                stand.work(worker)
                await stand.ready()
            crowd = Crowd(stands, await _tenants(stands, limits(count)), random.Random(1))
            await crowd.ask(count)
            crowd.lent = sum(stand.process.requests.quotas.lent for stand in stands)
            await _limit(stands, [{"concurrency": 1000, "outputTokensPerMinute": 10**9}] * 2)
            worker.script = lambda _: Script(delay_s=PATIENT_S)
            await crowd.abort(count)
            await until(lambda: all(stand.process.requests.open == 0 for stand in stands))
            crowd.reached = sum(seen.closed.is_set() for seen in worker.seen)
            await worker.stop()
            return crowd, sum(_left(stand) for stand in stands)


def _left(stand: Stand) -> float:
    """Amounts that are still set aside, and those that are unaccounted for."""
    totals = stand.process.requests.quotas.totals
    lost = (totals.reserved[k] - totals.settled[k] - totals.refunded[k] - totals.open[k] for k in range(SIZE))
    return sum(map(abs, totals.open)) + sum(map(abs, lost))


@contextlib.asynccontextmanager
async def _gateways(folder: Path, *, redis: bool) -> AsyncIterator[list[Stand]]:
    cluster, signing_key = ClusterDouble(), new_signing_key()
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(redis_server(folder)) if redis else None
        quota = Quota(redis=server.config if server else None, lease=not redis, wait_s=WAIT_S, gateways=GATEWAYS)
        stands = []
        for number in range(GATEWAYS):
            own = folder / str(number)
            own.mkdir()
            stands.append(
                await stack.enter_async_context(
                    gateway(own, quota=quota, cluster=cluster, signing_key=signing_key, name=f"g{number}")
                )
            )
        await until(lambda: all(not s.process.requests.quotas.away for s in stands))
        await until(lambda: all(s.process.requests.quotas.gateways == GATEWAYS for s in stands))
        yield stands


async def _tenants(stands: Sequence[Stand], limits: Sequence[dict[str, int]]) -> list[str]:
    """Their keys, once every gateway knows them."""
    keys = []
    for number in range(TENANTS):
        secret, key = manifests.key(f"tenant-{number}")
        stands[0].cluster.put(secret)
        keys.append(key)
    await _limit(stands, limits)
    await until(lambda: all(len(stand.process.registry.snapshot.keys) >= TENANTS for stand in stands))
    return keys


async def _limit(stands: Sequence[Stand], limits: Sequence[dict[str, int]]) -> None:
    for number in range(TENANTS):
        stands[0].cluster.put(manifests.tenant(f"tenant-{number}", limits=limits[number % 2]))
    concurrency = [limits[number % 2].get("concurrency") for number in range(TENANTS)]

    def known(stand: Stand) -> bool:
        tenants = stand.process.registry.snapshot.tenants
        names = [f"tenant-{number}" for number in range(TENANTS)]
        return all(name in tenants for name in names) and [tenants[name].concurrency for name in names] == concurrency

    await until(lambda: all(map(known, stands)))


def _request(key: str, *, stream: bool) -> bytes:
    asked = {"model": "chat", "stream": stream, "max_tokens": ANSWER}
    body = json.dumps(asked | {"messages": [{"role": "user", "content": "What is TTFT?"}]}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
