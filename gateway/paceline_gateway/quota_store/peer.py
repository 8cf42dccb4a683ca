"""The shared quota store at one of the gateways: the holder of the Lease `paceline-quota` counts for all.

The holder's name in the Lease begins with the address of its admin port; the others call it there with an internal
token. It counts only while its lease is fresh, so there are never two. A new holder begins with empty counters, and the
gateways send it what they know, as they do for a Redis that lost its data. While no gateway holds the Lease, or its
holder is unreachable, each tenant's `onStoreFailure` decides.
Known hole: without the API server a lease ends, and with it the sharing, though all gateways work.

`POST /internal/quota` on the admin port carries other gateways' calls to the holder, in JSON:

{"v": 1, "holder": "g0.ab12", "ttl": 15.0, "asks": [{"tenant", "seq", "epoch", "vectors": [six or five of four]}]}
{"v": 1, "gateways": 2, "grants": [{"epoch", "given": [..], "levels": [..]}]}

A call, and then its reply too, may carry what tenants were served: "served": {"<line>\\n<tenant>": tokens over weight}.
A limit that does not exist is null, and so is its level.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

import orjson
from fastapi import FastAPI, Request, Response

from paceline_core.auth import Signer, TrustBundle
from paceline_core.auth.internal_token import GATEWAY_AUDIENCE, HEADER
from paceline_core.clock import Clock
from paceline_core.errors import Code, PacelineError, RequestError, Unreachable
from paceline_core.kube import Cluster
from paceline_core.kube.leader_election import LeaderElector
from paceline_core.process import cancel
from paceline_gateway.admin.control import require
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection_pool import Address, DisconnectReason
from paceline_gateway.http.connection_pool import ConnectionPool as Connections
from paceline_gateway.http.message import Headers
from paceline_gateway.queueing.shared_fairness import MAX_REPORTED
from paceline_gateway.quota.bucket_store import BucketStore
from paceline_gateway.quota.types import SIZE, UNLIMITED, LeaseGrant, LeaseRequest, Vector
from paceline_gateway.quota_store.sync import SUMS

LEASE: Final = "paceline-quota"
LEASE_S: Final = 10.0
RENEW_S: Final = 2.0
PATH: Final = "/internal/quota"
REPLY_BYTES: Final = 1 << 20
VERSION: Final = 1
ASKS: Final = 1024


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """One gateway's call to the holder: it is alive for `ttl_s` (0: it leaves), and its lease requests.

    `served`: what tenants were served here; None to leave the sums out.
    """

    holder: str
    ttl_s: float
    asks: tuple[LeaseRequest, ...]
    served: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class ExchangeResponse:
    """The holder's reply: the number of gateways, the grants in request order, and the sums if the call had its own."""

    gateways: int
    grants: tuple[LeaseGrant, ...]
    served: Mapping[str, float] | None = None


def write_call(call: ExchangeRequest) -> bytes:
    asks = []  # infinite numbers are written as null
    for ask in call.asks:
        vectors = [ask.limits, ask.back, ask.held, ask.least, ask.want, *([] if ask.belief is None else [ask.belief])]
        asks.append({"tenant": ask.tenant, "seq": ask.seq, "epoch": ask.epoch, "vectors": vectors})
    more = {} if call.served is None else {"served": call.served}
    return orjson.dumps({"v": VERSION, "holder": call.holder, "ttl": call.ttl_s, "asks": asks} | more)


def read_call(body: bytes) -> ExchangeRequest:
    """Parse a call. Raises RequestError."""
    try:
        data = orjson.loads(body)
        version, holder, asks = data["v"], str(data["holder"]), data["asks"][:ASKS]
        served = _served(data.get("served"), MAX_REPORTED)
        call = ExchangeRequest(holder, float(data["ttl"]), tuple(_ask(holder, ask) for ask in asks), served)
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise RequestError(Code.INVALID_REQUEST, f"The body is no call for quota counters: {error!r}.") from None
    if version != VERSION:
        raise RequestError(Code.INVALID_REQUEST, f"v must be {VERSION}, not {version!r}.", param="v")
    return call


def write_reply(reply: ExchangeResponse) -> bytes:
    grants = [{"epoch": grant.epoch, "given": grant.given, "levels": grant.levels} for grant in reply.grants]
    more = {} if reply.served is None else {"served": reply.served}
    return orjson.dumps({"v": VERSION, "gateways": reply.gateways, "grants": grants} | more)


def read_reply(body: bytes, asks: int) -> ExchangeResponse:
    """Parse the reply to a call of `asks` lease requests. Raises Unreachable: such a gateway cannot count for us."""
    try:
        data = orjson.loads(body)
        grants = tuple(
            LeaseGrant(_vector(grant["given"]), _vector(grant["levels"]), int(grant["epoch"]))
            for grant in data["grants"]
        )
        version, gateways, served = data["v"], int(data["gateways"]), _served(data.get("served"))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise Unreachable(f"the gateway that counts answers strangely: {error!r}") from None
    if version != VERSION or len(grants) != asks:
        raise Unreachable(f"the gateway that counts answers {asks} asks with {len(grants)} grants of v {version!r}")
    return ExchangeResponse(gateways, grants, served)


def _ask(holder: str, data: Any) -> LeaseRequest:
    limits, back, held, least, want, *belief = (_vector(vector) for vector in data["vectors"])
    epoch, known = int(data["epoch"]), belief[0] if belief else None
    return LeaseRequest(str(data["tenant"]), holder, int(data["seq"]), limits, back, held, least, want, epoch, known)


def _served(data: Any, most: int | None = None) -> dict[str, float] | None:
    return None if data is None else {str(name): float(amount) for name, amount in islice(data.items(), most)}


def _vector(data: Any) -> Vector:
    if len(data) != SIZE:
        raise ValueError(f"a vector of {len(data)}")
    return tuple(UNLIMITED if number is None else float(number) for number in data)


@dataclass(slots=True)
class CounterServer:
    """The holder's state: all counters, the members and when each expires, and what tenants were served."""

    pool: BucketStore = field(default_factory=lambda: BucketStore(epoch=secrets.randbits(48) + 2))
    members: dict[str, float] = field(default_factory=dict)
    swept: float = 0.0
    served: dict[str, float] = field(default_factory=dict)

    def answer(self, call: ExchangeRequest, now: float) -> ExchangeResponse:
        if call.ttl_s > 0:
            self.members[call.holder] = now + call.ttl_s
        else:
            self.members.pop(call.holder, None)
        if now - self.swept >= RENEW_S:
            self.swept = now
            self.members = {holder: until for holder, until in self.members.items() if until > now}
            self.pool.sweep(now)
        grants = tuple(self.pool.exchange(ask, now) for ask in call.asks)
        if call.served is None:
            return ExchangeResponse(len(self.members), grants)
        if len(self.served) > SUMS:
            self.served.clear()
        for name, amount in call.served.items():
            self.served[name] = self.served.get(name, 0.0) + amount
        return ExchangeResponse(len(self.members), grants, self.served.copy())


@dataclass(frozen=True, slots=True)
class PeerDeps:
    """What a gateway needs to reach the holder. `leaves_s`: a member that is silent for so long counts as gone."""

    cluster: Cluster
    signer: Signer
    clock: Clock
    limits: HttpLimits
    leaves_s: float


class PeerStore:
    """One gateway's access to the counters: it is the holder or calls it. `address`: where other gateways reach it."""

    def __init__(self, holder: str, address: Address, ways: PeerDeps) -> None:
        self._holder = holder
        self._ways = ways
        self._now: Callable[[], float] = ways.clock.monotonic
        name = f"{address[0]}:{address[1]}/{holder}"
        self._candidate = LeaderElector(ways.cluster.leases, LEASE, name, LEASE_S, ways.clock)
        self._connections = Connections(ways.limits, self._now)
        self._owner: CounterServer | None = None
        self._address: Address | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def owner(self) -> CounterServer | None:
        """The counters while this gateway is the holder, else None."""
        if not self._candidate.leads:
            self._owner = None
        elif self._owner is None:
            self._owner = CounterServer()
        return self._owner

    def start(self) -> None:
        """Compete for the Lease and follow its holder."""
        self._task = asyncio.create_task(self._follow())

    def serve(self, body: bytes) -> bytes:
        """Answer another gateway's call. Raises RequestError when this gateway is not the holder."""
        owner = self.owner
        if owner is None:
            raise RequestError(Code.NO_CAPACITY, "This gateway does not hold the Lease of the quota counters.")
        return write_reply(owner.answer(read_call(body), self._now()))

    async def hello(self, holder: str, ttl_s: float) -> int:
        """Announce that this gateway is alive for `ttl_s`, or leaves (0); returns the number of gateways."""
        return (await self._call(ExchangeRequest(holder, ttl_s, ()))).gateways

    async def exchange(self, asks: Sequence[LeaseRequest]) -> list[LeaseGrant]:
        return list((await self._call(ExchangeRequest(self._holder, self._ways.leaves_s, tuple(asks)))).grants)

    async def share(self, served: Mapping[str, float]) -> Mapping[str, float]:
        """Add what tenants were served here, and return the sums of all gateways."""
        reply = await self._call(ExchangeRequest(self._holder, self._ways.leaves_s, (), served))
        return reply.served or {}

    async def close(self) -> None:
        """Release the Lease, so that another gateway takes over at once."""
        if self._task is not None:
            await cancel(self._task)
        await self._candidate.resign()
        await self._connections.close()

    async def _call(self, call: ExchangeRequest) -> ExchangeResponse:
        owner = self.owner
        if owner is not None:
            return owner.answer(call, self._now())
        address, body = self._address, write_call(call)
        if address is None:
            raise Unreachable("no gateway holds the Lease of the quota counters")
        token = self._ways.signer.token(GATEWAY_AUDIENCE, self._ways.clock.utc())
        head = (
            f"POST {PATH} HTTP/1.1\r\nhost: {address[0]}:{address[1]}\r\ncontent-type: application/json\r\n"
            f"{HEADER}: {token}\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        answer = _Answer()
        exchange = self._connections.send(address, [head.encode(), body], answer)
        try:
            return read_reply(await answer.whole, len(call.asks))
        finally:
            if not answer.whole.done() or answer.whole.cancelled():
                exchange.abort()

    async def _follow(self) -> None:
        while True:
            await self._candidate.renew()
            if not self._candidate.leads:
                with contextlib.suppress(PacelineError):  # the last known holder may still count; the elector logs it
                    self._address = address_of(await self._ways.cluster.leases.holder(LEASE))
            self._connections.sweep()
            await self._ways.clock.sleep(RENEW_S)


class _Answer:
    """Collects the whole body of a 200 answer."""

    def __init__(self) -> None:
        self.whole: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._pieces: list[bytes] = []
        self._size = 0

    def head(self, status: int, _: Headers) -> None:
        self._status = status

    def data(self, data: bytes, _: bool) -> None:
        self._size += len(data)
        if self._size <= REPLY_BYTES:
            self._pieces.append(data)

    def end(self) -> None:
        if self.whole.done():
            return
        if self._status == 200 and self._size <= REPLY_BYTES:
            self.whole.set_result(b"".join(self._pieces))
        else:
            self.whole.set_exception(Unreachable(f"the gateway that should count answers {self._status}"))

    def lost(self, loss: DisconnectReason) -> None:
        if not self.whole.done():
            self.whole.set_exception(Unreachable(f"the gateway that counts is lost: {loss}"))


def address_of(holder: str) -> Address | None:
    """The address of the admin port in a holder's name; None if it has none."""
    host, colon, port = holder.partition("/")[0].rpartition(":")
    return (host, int(port)) if colon and host and port.isdigit() else None


BODY_BYTES = 1 << 20


def add_quota(app: FastAPI, peers: PeerStore, trust: TrustBundle) -> None:

    @app.post(PATH)
    async def exchange(request: Request) -> Response:
        """Answer a caller with another gateway's internal token."""
        require(request, trust, "gateway", "a gateway")
        length = request.headers.get("content-length", "")
        if not length.isdigit() or int(length) > BODY_BYTES:
            message = f"Send content-length, {BODY_BYTES} bytes at most."
            raise RequestError(Code.REQUEST_TOO_LARGE, message)
        return Response(peers.serve(await request.body()), media_type="application/json")
