"""Who sends a request, as far as its headers are trustworthy.

Only a gateway sets class, tenant, deadline and promised TPOT; without its internal token any client could have written
them, so they are ignored. A harmless request id is accepted from every client, any other is replaced.
"""

import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass

from paceline_core.auth.internal_token import TokenClaims
from paceline_core.registry import RequestClass
from paceline_core.wire import PREFIX, RESUME, SEED, SUSPECT, PrefixKeys

_REQUEST_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_SOONEST_S = 0.001


@dataclass(frozen=True, slots=True)
class Caller:
    """`trusted`: the caller has a valid internal token; `gateway`, `autoscaler`: it is one.

    `deadline_s` counts from now, `tpot_s` is the promised TPOT; 0 means none.

    `resume`: how many bytes at the body's end describe the earlier output of the stream; -1: the header is invalid.
    `seed` and `max_tokens` apply to a request without them. `prefix`: the gateway's keys for the prompt.
    `traceparent`: any client may set it. `suspect`: the gateway's header for a request that may have ended a worker.
    """

    request_id: str
    trusted: bool = False
    gateway: bool = False
    autoscaler: bool = False
    request_class: RequestClass = RequestClass.INTERACTIVE
    tenant: str = ""
    deadline_s: float = 0.0
    tpot_s: float = 0.0
    max_tokens: int | None = None
    resume: int = 0
    seed: int | None = None
    prefix: PrefixKeys | None = None
    traceparent: str = ""
    suspect: str = ""


def caller(headers: Mapping[bytes, bytes], claims: TokenClaims | None) -> Caller:
    """Parse ASGI headers; `claims` are those of a valid internal token."""
    values = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}
    request_id = values.get("x-request-id", "")
    if not _REQUEST_ID.fullmatch(request_id):
        request_id = secrets.token_hex(12)
    if claims is None:
        return Caller(request_id, traceparent=values.get("traceparent", ""))
    request_class = values.get("x-paceline-class", "")
    return Caller(
        request_id,
        trusted=True,
        gateway=claims.issuer == "gateway",
        autoscaler=claims.issuer == "autoscaler",
        request_class=RequestClass(request_class) if request_class in set(RequestClass) else RequestClass.INTERACTIVE,
        tenant=values.get("x-paceline-tenant", ""),
        deadline_s=_deadline(values.get("x-paceline-deadline-ms", "")),
        tpot_s=(_whole(values.get("x-paceline-tpot-ms", "")) or 0) / 1000,
        max_tokens=_whole(values.get("x-paceline-max-tokens", "")),
        resume=(_whole(values[RESUME]) or -1) if RESUME in values else 0,
        seed=_whole(values.get(SEED, "")),
        prefix=PrefixKeys.read(values.get(PREFIX, "")),
        suspect=values.get(SUSPECT, ""),
        traceparent=values.get("traceparent", ""),
    )


def _deadline(text: str) -> float:
    """Remaining seconds; a deadline in the past becomes the shortest one possible, so that the engine reports it."""
    digits = text.removeprefix("-")
    return max(int(text) / 1000, _SOONEST_S) if digits.isascii() and digits.isdigit() and len(digits) < 12 else 0.0


def _whole(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None
