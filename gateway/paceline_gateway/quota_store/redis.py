"""The shared quota store in Redis or Valkey: one script call for each exchange, all of a batch in one round trip.

A tenant's buckets are one key, which expires some time after they have filled up. The password comes from a file that
is read at each connect, so it can be rotated without a restart. Nothing is retried here: `QuotaSync` does that, and the
script recognises an exchange that it has already done.
Known hole: one Redis, no cluster and no sentinel; a fail-over that loses the last writes forgets what they charged.
"""

from collections.abc import Mapping, Sequence
from hashlib import sha1
from importlib.resources import files
from typing import Any, Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import NoScriptError, RedisError

from paceline_core.errors import Unreachable
from paceline_gateway.config import RedisConfig
from paceline_gateway.quota.bucket_store import FORGET_S, TTL_S
from paceline_gateway.quota.types import SIZE, UNLIMITED, LeaseGrant, LeaseRequest, Vector
from paceline_gateway.quota_store.sync import SUMS

EXCHANGE: Final = files(__package__).joinpath("exchange.lua").read_text()
SERVED: Final = files(__package__).joinpath("served.lua").read_text()
SERVED_S: Final = 600.0
HELLO: Final = files(__package__).joinpath("hello.lua").read_text()
_DIGEST: Final = sha1(EXCHANGE.encode(), usedforsecurity=False).hexdigest()


class RedisStore:
    """The store in one Redis. `namespace` keeps several installs apart."""

    def __init__(self, config: RedisConfig, namespace: str) -> None:
        self._prefix = f"{config.prefix}:{namespace}"
        more: dict[str, Any] = {}
        if config.username or config.password_file is not None:
            more["credential_provider"] = _PasswordFile(config)
        if config.ca_file is not None:
            more["ssl_ca_certs"] = str(config.ca_file)
        self._redis: Redis = Redis.from_url(
            config.url,
            socket_timeout=config.timeout_s,
            socket_connect_timeout=config.timeout_s,
            retry=Retry(NoBackoff(), 0),
            max_connections=4,
            **more,
        )

    def start(self) -> None:
        """Does nothing: connections are opened on demand."""

    async def hello(self, holder: str, ttl_s: float) -> int:
        """Announce that this gateway is alive for `ttl_s`, or leaves (0); returns the number of gateways."""
        try:
            return int(await self._redis.eval(HELLO, 1, f"{self._prefix}:gateways", holder, str(ttl_s)))
        except (RedisError, OSError, TimeoutError) as error:
            raise await self._unreachable(error) from None

    async def exchange(self, asks: Sequence[LeaseRequest]) -> list[LeaseGrant]:
        try:
            answers = await self._send(asks)
            if any(isinstance(answer, NoScriptError) for answer in answers):
                await self._redis.script_load(EXCHANGE)
                answers = await self._send(asks)
            return [grant(ask, answer) for ask, answer in zip(asks, answers, strict=True)]
        except (RedisError, OSError, TimeoutError) as error:
            raise await self._unreachable(error) from None

    async def share(self, served: Mapping[str, float]) -> Mapping[str, float]:
        """Add what tenants were served here, and return the sums of all gateways."""
        pairs = [part for name, amount in served.items() for part in (name, repr(round(amount, 3)))]
        bounds = (str(round(1000 * SERVED_S)), str(SUMS))
        try:
            found = await self._redis.eval(SERVED, 1, f"{self._prefix}:served", *bounds, *pairs)
        except (RedisError, OSError, TimeoutError) as error:
            raise await self._unreachable(error) from None
        return {name.decode(): float(total) for name, total in zip(found[::2], found[1::2], strict=True)}

    async def close(self) -> None:
        await self._redis.aclose()

    async def _send(self, asks: Sequence[LeaseRequest]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for ask in asks:
                pipe.evalsha(_DIGEST, 1, f"{self._prefix}:quota:{ask.tenant}", *arguments(ask))
            return list(await pipe.execute(raise_on_error=False))

    async def _unreachable(self, error: Exception) -> Unreachable:
        """Close the connections: a late answer on one of them must not be read as the answer to another command."""
        await self._redis.connection_pool.disconnect()
        return Unreachable(str(error) or type(error).__name__)


class _PasswordFile(CredentialProvider):
    """The current user and password."""

    def __init__(self, config: RedisConfig) -> None:
        self._config = config

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        return self._config.credentials()


def arguments(ask: LeaseRequest) -> list[str]:
    """A lease request as the script's arguments."""
    vectors = (ask.limits, ask.back, ask.held, ask.least, ask.want, *(() if ask.belief is None else (ask.belief,)))
    numbers = [repr(-1.0 if number == UNLIMITED else float(number)) for vector in vectors for number in vector]
    return [ask.holder, str(ask.seq), str(ask.epoch), str(TTL_S), str(FORGET_S), *numbers]


def grant(ask: LeaseRequest, answer: Any) -> LeaseGrant:
    """The grant in the script's answer. Raises the script's error."""
    if isinstance(answer, Exception):
        raise answer
    numbers: Vector = tuple(float(text) for text in answer[1:])
    levels = (
        UNLIMITED if limit == UNLIMITED else level for limit, level in zip(ask.limits, numbers[SIZE:], strict=True)
    )
    return LeaseGrant(numbers[:SIZE], tuple(levels), int(answer[0]))
