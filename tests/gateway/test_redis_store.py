"""Several gateways and a real Redis: no overshoot, no leak, and what happens when it dies and comes back."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from tests.gateway.quota_bench import ONE, limited
from tests.gateway.redis_server import RedisServer, redis_server
from tests.gateway.stand import until

from paceline_core.clock import SystemClock
from paceline_core.errors import Code, RequestError, Unreachable
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.telemetry import Metrics
from paceline_gateway.config import RedisConfig
from paceline_gateway.quota.leased_buckets import SHARE
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import SIZE, QuotaUsage, Reservation
from paceline_gateway.quota_store.redis import RedisStore
from paceline_gateway.quota_store.sync import SUMS, QuotaSync

pytestmark = pytest.mark.real
CLOCK = SystemClock()
NAMESPACE = "paceline-system"
WAIT_S = 4.0
HOLDERS = count()


@dataclass(slots=True)
class Node:
    """One gateway's counters, and who carries for them."""

    quotas: QuotaManager
    pump: QuotaSync

    async def reserve(self, who: ResolvedTenant, use: QuotaUsage) -> Reservation | RequestError:
        """Ask, and wait for the answer."""
        answer: asyncio.Future[Reservation | RequestError] = asyncio.get_running_loop().create_future()
        self.quotas.reserve(who, use, CLOCK.monotonic(), answer.set_result)
        async with asyncio.timeout(20):
            return await answer

    def settle(self, reservation: Reservation, used: QuotaUsage) -> None:
        """It has ended."""
        self.quotas.settle(reservation, used, CLOCK.monotonic())


@contextlib.asynccontextmanager
async def nodes(config: RedisConfig, size: int, wait_s: float = WAIT_S) -> AsyncIterator[list[Node]]:
    """So many gateways; they know of each other."""
    made = []
    for _ in range(size):
        holder = f"g{next(HOLDERS)}"
        pump = QuotaSync(RedisStore(config, NAMESPACE), holder, wait_s, CLOCK, Metrics("gateway"))
        made.append(Node(QuotaManager(pump.send, holder), pump))
    for node in made:
        node.pump.start(node.quotas)
    sweeping = asyncio.create_task(_sweep(made))
    try:
        yield made
    finally:
        sweeping.cancel()
        for node in made:
            await node.pump.close(node.quotas)


async def _sweep(made: list[Node]) -> None:
    while True:
        await asyncio.sleep(0.1)
        for node in made:
            node.quotas.tick(CLOCK.monotonic())


async def test_three_gateways_and_fifty_tenants_overshoot_nothing(tmp_path: Path) -> None:
    draw, tenants = random.Random(11), [limited(f"t{number}", outputTokensPerMinute=6000) for number in range(50)]
    taken = dict.fromkeys((who.name for who in tenants), 0)
    async with redis_server(tmp_path) as server, nodes(server.config, 3) as group:
        began = CLOCK.monotonic()

        async def client(requests: int) -> None:
            for _ in range(requests):
                who, use = draw.choice(tenants), QuotaUsage(1, 10, draw.randint(20, 120))
                node = draw.choice(group)
                result = await node.reserve(who, use)
                if isinstance(result, Reservation):
                    taken[who.name] += use.output_tokens
                    node.settle(result, use)

        await asyncio.gather(*[client(200) for _ in range(50)])
        passed = CLOCK.monotonic() - began
        assert sum(node.quotas.totals.settled[0] for node in group) == sum(
            node.quotas.totals.reserved[0] for node in group
        )
    most = 6000 * (1 + passed / 60)
    assert max(taken.values()) <= most * 1.01
    assert min(taken.values()) >= 6000 * 0.9, "the limits must have been reached for this to say anything"


async def test_random_ends_leave_nothing_reserved_and_nothing_taken(tmp_path: Path) -> None:
    draw, who = random.Random(3), limited(outputTokensPerMinute=10**7, concurrency=300)
    async with redis_server(tmp_path) as server:
        async with nodes(server.config, 3) as group:

            async def client() -> None:
                for _ in range(40):
                    node = draw.choice(group)
                    result = await node.reserve(who, QuotaUsage(1, 1, draw.randint(1, 400)))
                    if isinstance(result, Reservation):
                        await asyncio.sleep(0)
                        node.settle(result, draw.choice([QuotaUsage(), QuotaUsage(1, 1, draw.randint(0, 400))]))

            await asyncio.gather(*[client() for _ in range(100)])
            for node in group:
                assert node.quotas.totals.open == [0.0] * SIZE
        async with nodes(server.config, 1) as (late,):
            still = [await late.reserve(who, ONE) for _ in range(300)]
            assert all(isinstance(result, Reservation) for result in still)
            assert isinstance(await late.reserve(who, ONE), RequestError)


async def test_each_gateway_knows_how_many_there_are(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, nodes(server.config, 2) as (left, right):
        await until(lambda: right.quotas.gateways == 2)
        async with nodes(server.config, 1):
            pass
        assert left.quotas.gateways <= 2


async def test_a_killed_redis_is_followed_by_each_tenants_policy_and_forgets_nothing(tmp_path: Path) -> None:
    """120 a minute: 30 before, then two gateways' shares of what was left, all of it paid to a Redis that forgot.

    A gateway knows the other's last slice only after its own next ask, so their slices are the error.
    """
    who, closed = limited(requestsPerMinute=120), limited("shut", on_store_failure="closed", requestsPerMinute=120)
    async with redis_server(tmp_path) as server, nodes(server.config, 2) as group:
        await until(lambda: all(node.quotas.gateways == 2 for node in group))
        began = CLOCK.monotonic()
        served = await _spend(group, who, 30)
        assert served == 30
        await server.kill()
        refusal = await group[0].reserve(closed, ONE)
        assert isinstance(refusal, RequestError)
        assert refusal.code is Code.QUOTA_UNAVAILABLE
        served += await _spend(group, who, 200)
        assert served <= 120 * (1 + SHARE) + (CLOCK.monotonic() - began) * 2
        assert all(node.quotas.away and node.quotas.lent for node in group)
        await server.start()
        await until(lambda: not any(node.quotas.away or _owes(node) for node in group))
        served += await _spend(group, who, 200)
        assert served <= 120 * (1 + SHARE) + (CLOCK.monotonic() - began) * 2
        assert isinstance(await group[0].reserve(closed, ONE), Reservation)


def _owes(node: Node) -> bool:
    """Something was spent there that Redis may not know of yet."""
    return any(buckets.asked is not None or any(buckets.owed) for buckets in node.quotas._buckets.values())


async def _spend(group: list[Node], who: ResolvedTenant, requests: int) -> int:
    served = 0
    for number in range(requests):
        node = group[number % len(group)]
        result = await node.reserve(who, ONE)
        if isinstance(result, Reservation):
            node.settle(result, ONE)
            served += 1
    return served


async def test_a_redis_that_does_not_answer_holds_nobody_up_for_long(tmp_path: Path) -> None:
    """A server that accepts and says nothing."""

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, nodes(RedisConfig(url=f"redis://127.0.0.1:{port}"), 1, wait_s=0.1) as (node,):
        assert isinstance(await node.reserve(limited(requestsPerMinute=60), ONE), Reservation)
        assert node.quotas.away


async def test_a_password_is_read_from_its_file_at_each_connect_and_never_exposed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    secret = tmp_path / "password"
    secret.write_text("wrong-secret\n")
    async with redis_server(tmp_path, "--requirepass", "right-secret") as server:
        config = RedisConfig(url=f"redis://127.0.0.1:{server.port}", password_file=secret)
        store = RedisStore(config, NAMESPACE)
        with pytest.raises(Unreachable) as caught:
            await store.hello("g0", 10.0)
        assert "secret" not in str(caught.value)
        secret.write_text("right-secret\n")
        assert await store.hello("g0", 10.0) == 1
        await store.close()
    assert "secret" not in caplog.text


async def test_a_flushed_script_is_loaded_again(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server, nodes(server.config, 1) as (node,):
        who = limited(requestsPerMinute=10)
        await _spend([node], who, 2)
        await _command(server, b"SCRIPT FLUSH")
        assert await _spend([node], who, 10) == 8


async def _command(server: RedisServer, words: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(words + b"\r\n")
    assert (await reader.readline()).startswith(b"+OK")
    writer.close()


async def test_what_tenants_were_served_is_summed_over_all_gateways_and_bounded(tmp_path: Path) -> None:
    async with redis_server(tmp_path) as server:
        left, right = RedisStore(server.config, NAMESPACE), RedisStore(server.config, NAMESPACE)
        try:
            assert await left.share({}) == {}
            assert await left.share({"chat interactive\na": 10.5}) == {"chat interactive\na": 10.5}
            assert await right.share({"chat interactive\na": 4.0, "b": -1.0}) == {
                "chat interactive\na": 14.5,
                "b": -1.0,
            }
            many = {f"t{number}": 1.0 for number in range(SUMS)}
            assert len(await left.share(many)) == SUMS + 2
            assert await right.share({"c": 1.0}) == {"c": 1.0}
            await server.kill()
            with pytest.raises(Unreachable):
                await right.share({})
        finally:
            await left.close()
            await right.close()
