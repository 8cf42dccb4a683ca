"""What a tenant over its limits hears: how long to wait, or that waiting does not help.

`x-ratelimit-*` as OpenAI writes them: limit, remaining, and the time until all of it is there again.

Of input and output tokens the one is told that has the smaller part left; a limit that does not exist is not told.
A limit of zero is never there again, so it has no time, as its refusal has no `retry-after`.
"""

from collections.abc import Sequence

from paceline_core.errors import Code, RequestError
from paceline_gateway.quota.types import CLOSE, NEVER, SLOTS, UNLIMITED, Vector

_WHAT = ("requests", "input tokens", "output tokens")


def over_limit(wait: float, kind: int, limit: float, need: float, left: float) -> RequestError:
    """Of the limit of this kind too little is left for so many seconds."""
    if wait == NEVER:
        message = f"Your limit of {_WHAT[kind]} per minute is 0; ask whoever runs this to raise it."
        return RequestError(Code.INSUFFICIENT_QUOTA, message)
    if kind == SLOTS:
        message = f"You have as many requests open as you may, {limit:.0f}; wait for one to end."
    elif 1 <= left < need:
        remain = f"Of your limit of {limit:.0f} {_WHAT[kind]} per minute {int(left + CLOSE)} are left"
        message = f"{remain}, and this request may use {need:.0f}; {_retry(wait)}."
    else:
        message = f"You have used your limit of {limit:.0f} {_WHAT[kind]} per minute; {_retry(wait)}."
    return RequestError(Code.RATE_LIMIT_EXCEEDED, message, retry_after=wait)


def _retry(wait: float) -> str:
    return f"retry in {max(wait, 0.1):.1f} s"


def store_unavailable(retry_after: float) -> RequestError:
    """The tenant's limits cannot be looked up, and the tenant is to be refused then."""
    message = (
        "The store of this gateway's quota counters cannot be reached, and your tenant is closed without it; retry."
    )
    return RequestError(Code.QUOTA_UNAVAILABLE, message, retry_after=retry_after)


def too_many_waiters(waiting: int) -> RequestError:
    """Too many requests of the tenant wait for the store already."""
    message = f"{waiting} of your requests wait for the quota counters already; retry."
    return RequestError(Code.RATE_LIMIT_EXCEEDED, message, retry_after=1.0)


def ratelimit_fields(limits: Vector, left: Sequence[float]) -> bytes:
    """Complete header lines for these limits and what is left of them."""
    fields = "" if limits[0] == UNLIMITED else _lines("requests", limits[0], left[0])
    tightest = 2 if _part(limits[2], left[2]) < _part(limits[1], left[1]) else 1
    if limits[tightest] != UNLIMITED:
        fields += _lines("tokens", limits[tightest], left[tightest])
    return fields.encode()


def duration(seconds: float) -> str:
    """`17ms`, `1.5s`, `6m0s`, `1h0m2s`."""
    thousandths = max(round(seconds * 1000), 0)
    if thousandths < 1000:
        return f"{thousandths}ms" if thousandths else "0s"
    minutes, rest = divmod(thousandths, 60_000)
    text = f"{rest / 1000:g}s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return text


def _part(limit: float, left: float) -> float:
    """Of a limit, what is left; more than all where there is none."""
    if limit == UNLIMITED:
        return UNLIMITED
    return left / limit if limit else 0.0


def _lines(what: str, limit: float, left: float) -> str:
    reset = f"x-ratelimit-reset-{what}: {duration((limit - left) * 60.0 / limit)}\r\n" if limit else ""
    return (
        f"x-ratelimit-limit-{what}: {int(limit)}\r\nx-ratelimit-remaining-{what}: {max(int(left + 1e-6), 0)}\r\n{reset}"
    )
