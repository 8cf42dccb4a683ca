"""Reserve on admission, settle on use: tenants' limits on requests, tokens and concurrency.

A request reserves what it is expected to use, so that many at once cannot pass a limit together; when it ends, the
difference to what it used is given back or charged. Invariant: each reservation is settled exactly once, and then
what was taken from the buckets is what was used. Known holes, for the store that several gateways will share: counters
are this gateway's alone and start anew with it; monthly budgets are not enforced here.
"""

from dataclasses import dataclass

from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_core.registry import Outcome
from paceline_gateway.quota.bucket import NEVER, Bucket
from paceline_gateway.requests.nouns import Record

_NOT_SERVED = frozenset({Outcome.SHED, Outcome.UPSTREAM_ERROR, Outcome.TIMEOUT})


@dataclass(frozen=True, slots=True)
class Use:
    """What a request needs, or has used."""

    requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Reservation:
    """What was set aside for one request."""

    tenant: str
    use: Use


class _Account:
    """One tenant's buckets, by what they limit. `open` counts requests under way."""

    def __init__(self, tenant: ResolvedTenant, now: float, open_requests: int) -> None:
        self.tenant = tenant
        self.open = open_requests
        limits = {
            "requests": tenant.requests_per_minute,
            "input_tokens": tenant.input_tokens_per_minute,
            "output_tokens": tenant.output_tokens_per_minute,
        }
        self.buckets = {name: Bucket(limit, now) for name, limit in limits.items() if limit is not None}


class Quotas:
    """All tenants' accounts at this gateway."""

    def __init__(self) -> None:
        self._accounts: dict[str, _Account] = {}

    def reserve(self, tenant: ResolvedTenant, use: Use, now: float) -> Reservation | RequestError:
        """Set aside what a request is expected to use, or say why not and for how long."""
        account = self._account(tenant, now)
        if tenant.concurrency is not None and account.open >= tenant.concurrency:
            message = f"You have {account.open} requests open, as many as you may; wait for one to end."
            return RequestError(Code.RATE_LIMIT_EXCEEDED, message, retry_after=1.0)
        waits = {name: bucket.wait(getattr(use, name), now) for name, bucket in account.buckets.items()}
        tightest = max(waits, key=lambda name: waits[name], default=None)
        if tightest is not None and waits[tightest] > 0:
            return _refusal(tightest, waits[tightest])
        _charge(account, use, now)
        account.open += 1
        return Reservation(tenant.name, use)

    def settle(self, reservation: Reservation, used: Use, now: float) -> None:
        """The request has ended: charge what it used instead of what was reserved."""
        account = self._accounts[reservation.tenant]
        account.open -= 1
        over = Use(
            used.requests - reservation.use.requests,
            used.input_tokens - reservation.use.input_tokens,
            used.output_tokens - reservation.use.output_tokens,
        )
        _charge(account, over, now)

    def _account(self, tenant: ResolvedTenant, now: float) -> _Account:
        account = self._accounts.get(tenant.name)
        if account is None or account.tenant is not tenant:
            if account is None or _limits(account.tenant) != _limits(tenant):
                account = _Account(tenant, now, account.open if account else 0)
                self._accounts[tenant.name] = account
            account.tenant = tenant
        return account


def used(record: Record, reserved: Use) -> Use:
    """What a request has used: nothing if it never reached a worker or no worker could answer it.

    Where the prompt's tokens were not told, the estimate stands.
    """
    if record.sent is None or (record.outcome in _NOT_SERVED and not record.meter.output):
        return Use()
    if record.outcome is Outcome.CLIENT_ERROR:
        return Use(requests=1)
    return Use(1, record.meter.prompt or reserved.input_tokens, record.meter.output)


def _charge(account: _Account, use: Use, now: float) -> None:
    for name, bucket in account.buckets.items():
        bucket.take(getattr(use, name), now)


def _limits(tenant: ResolvedTenant) -> tuple[int | None, ...]:
    return (tenant.requests_per_minute, tenant.input_tokens_per_minute, tenant.output_tokens_per_minute)


def _refusal(name: str, wait: float) -> RequestError:
    what = name.replace("_", " ")
    if wait == NEVER:
        return RequestError(Code.INSUFFICIENT_QUOTA, f"Your limit of {what} is 0; ask whoever runs this to raise it.")
    message = f"You have used your limit of {what} per minute; retry in {wait:.1f} s."
    return RequestError(Code.RATE_LIMIT_EXCEEDED, message, retry_after=wait)
