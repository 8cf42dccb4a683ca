"""Asks and grants between gateways, as JSON. A limit that is none is null, as is the level beside it.

{"v": 1, "holder": "g0.ab12", "ttl": 15.0, "asks": [{"tenant", "seq", "epoch", "vectors": [six or five of four]}]}
{"v": 1, "gateways": 2, "grants": [{"epoch", "given": [..], "levels": [..]}]}

A call may tell, and its reply then does, what tenants were served: "served": {"<line>\\n<tenant>": tokens over weight}.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson

from paceline_core.errors import Code, RequestError, Unreachable
from paceline_gateway.queueing.shared_fairness import MAX_REPORTED
from paceline_gateway.quota.types import SIZE, UNLIMITED, LeaseGrant, LeaseRequest, Vector

VERSION: Final = 1
ASKS: Final = 1024


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """What one gateway sends to the one that counts: that it lives for `ttl_s` (0: it leaves), and its asks.

    `served`: what tenants were served here; None when the sums are of no interest.
    """

    holder: str
    ttl_s: float
    asks: tuple[LeaseRequest, ...]
    served: Mapping[str, float] | None = None


@dataclass(frozen=True, slots=True)
class ExchangeResponse:
    """What it hears: how many gateways there are, its grants in their order, and sums if it told its own."""

    gateways: int
    grants: tuple[LeaseGrant, ...]
    served: Mapping[str, float] | None = None


def write_call(call: ExchangeRequest) -> bytes:
    asks = []  # an infinite number is written as null
    for ask in call.asks:
        vectors = [ask.limits, ask.back, ask.held, ask.least, ask.want, *([] if ask.belief is None else [ask.belief])]
        asks.append({"tenant": ask.tenant, "seq": ask.seq, "epoch": ask.epoch, "vectors": vectors})
    more = {} if call.served is None else {"served": call.served}
    return orjson.dumps({"v": VERSION, "holder": call.holder, "ttl": call.ttl_s, "asks": asks} | more)


def read_call(body: bytes) -> ExchangeRequest:
    """The call in a body. Raises RequestError."""
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
    """The reply in a body, to so many asks. Raises Unreachable: who answers like that does not count for us."""
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
