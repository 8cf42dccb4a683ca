"""What a tenant over its limits hears: how long to wait, or that waiting does not help."""

from paceline_core.errors import Code, RequestError
from paceline_gateway.quota.nouns import CLOSE, NEVER, SLOTS

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
