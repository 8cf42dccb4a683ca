"""One gateway's account of every tenant's month: the use of all gateways, reservations, use not stored yet. Pure.

The API server's status is authoritative, and a gateway holds only what it has not added to it. A write adds that to the
gateway's own entry, guarded by the version that it is based on. So a restarted gateway continues from the status, no
number is lost or counted twice, and an entry may be folded while its gateway lives. A write without an answer is sent
again unchanged: the guard applies it once, and the next status shows whether it was applied.
Invariant: what all gateways were charged = what is stored + what each still holds.
A budget counts what is stored, what this gateway holds, and what its open requests have reserved. So it is exceeded at
most by what other gateways settle between two of their writes, what they have open, and what the open requests here may
use beyond their reservations (`cost.py` bounds that).
Known hole: a gateway that crashes loses what it held: at most a minute's use while the API server answers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from paceline_core.clock import rfc3339
from paceline_core.errors import Code, RequestError
from paceline_core.objects.resolved import ResolvedTenant
from paceline_gateway.usage.types import NOTHING, ZERO, StoredUsage, UsageAmount, UsageWrite, end_of, grown, month_of


@dataclass(slots=True, eq=False)
class _Account:
    """One tenant. `since`: when the oldest of `held` was charged; `total`: what is stored for the month.

    `sent` is a write that is under way (`flying`) or in doubt, because it had no answer; if it is also contested
    (`stale`), only the next status can tell. `passed` is the version that the last successful write replaced.
    """

    stored: StoredUsage | None = None
    total: UsageAmount = NOTHING
    held: dict[str, UsageAmount] = field(default_factory=dict)
    reserved: UsageAmount = NOTHING
    since: float | None = None
    sent: UsageWrite | None = None
    sent_at: float = 0.0
    flying: bool = False
    doubted: bool = False
    stale: bool = False
    passed: str = ""


class UsageLedger:
    """`gateway` names this gateway's entries."""

    def __init__(self, gateway: str, moment: datetime) -> None:
        self.gateway = gateway
        self.month = month_of(moment)
        self._accounts: dict[str, _Account] = {}
        self._reservations: dict[int, tuple[_Account, UsageAmount]] = {}

    def roll(self, moment: datetime) -> None:
        """Start a new month when the current one is over: later charges count for the new one."""
        month = month_of(moment)
        if month != self.month:
            self.month = month
            for account in self._accounts.values():
                account.total = NOTHING if account.stored is None else account.stored.total(month)

    def reserve(self, request: int, tenant: ResolvedTenant, need: UsageAmount) -> RequestError | None:
        """Reserve what a request may use of a monthly budget; the error if it does not fit. `release` it at the end."""
        if not tenant.budgeted:
            return None
        account = self._accounts.setdefault(tenant.name, _Account())
        due = self.used(tenant.name) + account.reserved
        refusal = _over(tenant, due, need, self.month)
        if refusal is None:
            account.reserved += need
            self._reservations[request] = (account, need)
        return refusal

    def exhausted(self, tenant: ResolvedTenant, least: UsageAmount) -> RequestError | None:
        """The error if even so little exceeds a monthly budget; None if it fits."""
        if not tenant.budgeted:
            return None
        return _over(tenant, self.used(tenant.name) + self.reserved(tenant.name), least, self.month)

    def release(self, request: int) -> None:
        """A request has ended: drop its reservation; its use has been charged."""
        found = self._reservations.pop(request, None)
        if found is not None:
            account, need = found
            account.reserved -= need

    def charged(self, tenant: str, spent: UsageAmount, now: float) -> None:
        """Charge a request's use. For a tenant that no longer exists nothing is kept."""
        account = self._accounts.get(tenant)
        if account is None or not spent:
            return
        account.held[self.month] = account.held.get(self.month, NOTHING) + spent
        if account.since is None:
            account.since = now

    def used(self, tenant: str) -> UsageAmount:
        """This month's use by all gateways, as far as known."""
        account = self._accounts.get(tenant)
        return NOTHING if account is None else account.total + account.held.get(self.month, NOTHING)

    def reserved(self, tenant: str) -> UsageAmount:
        """What the open requests here have reserved of a budget; zero without a budget."""
        account = self._accounts.get(tenant)
        return NOTHING if account is None else account.reserved

    def on_status(self, tenant: str, stored: StoredUsage) -> None:
        """The API server's status of a tenant. A version that a later successful write replaced is ignored."""
        account = self._accounts.setdefault(tenant, _Account())
        if stored.version and stored.version == account.passed:
            return
        account.stored, account.total = stored, stored.total(self.month)
        if account.sent is not None and stored.version != account.sent.version:
            self._resolve(account, account.sent, stored)

    def gone(self, tenant: str) -> None:
        self._accounts.pop(tenant, None)

    def keep(self, tenants: Mapping[str, object]) -> None:
        """Forget all other tenants."""
        for tenant in self._accounts.keys() - tenants.keys():
            self.gone(tenant)

    def due(self, now: float, age_s: float) -> list[str]:
        """Tenants to write now: those with use held for `age_s`, and writes to repeat; oldest first."""
        found = [
            (account.since, tenant)
            for tenant, account in self._accounts.items()
            if account.since is not None and now - account.since >= age_s and _may_write(account)
        ]
        return [tenant for _, tenant in sorted(found)]

    def begin(self, tenant: str, moment: datetime, now: float) -> UsageWrite | None:
        """The next write; None if there is nothing to write or the status is unknown. One of the next three ends it."""
        account = self._accounts.get(tenant)
        if account is None or account.stored is None or not _may_write(account):
            return None
        if account.sent is None:
            delta = dict(account.held)
            if not delta:
                account.since = None
                return None
            entries = grown(account.stored.entries, self.gateway, delta, moment)
            account.sent = UsageWrite(account.stored.version, month_of(moment), delta, entries)
            account.sent_at = now
        account.flying = True
        return account.sent

    def written(self, tenant: str) -> None:
        """The write is stored. A status seen meanwhile came after it, since no other write can come in between."""
        account = self._accounts.get(tenant)
        if account is None or account.sent is None:
            return
        write, stored = account.sent, account.stored
        account.passed = write.version
        if stored is not None and stored.version == write.version:
            account.stored = StoredUsage("", write.entries)
            account.total = account.stored.total(self.month)
        self._done(account, write)

    def contested(self, tenant: str) -> None:
        """The status had changed before the write: its next version shows whether an earlier try was applied."""
        account = self._accounts.get(tenant)
        if account is None or account.sent is None or account.stored is None:
            return
        write, stored, account.flying = account.sent, account.stored, False
        if stored.version != write.version:
            self._resolve(account, write, stored)
        elif account.doubted:
            account.stale = True
        else:
            account.sent, account.stored = None, replace(stored, version="")

    def unanswered(self, tenant: str) -> None:
        account = self._accounts.get(tenant)
        if account is not None and account.sent is not None:
            account.flying, account.doubted = False, True

    def holds(self, now: float) -> Iterator[tuple[str, float]]:
        """Tenants with use that is not stored yet, and for how long."""
        for tenant, account in self._accounts.items():
            if account.since is not None:
                yield tenant, now - account.since

    def _resolve(self, account: _Account, write: UsageWrite, stored: StoredUsage) -> None:
        """Check whether a later status than the one that the write is based on contains the write."""
        intended = StoredUsage("", write.entries).own(self.gateway)
        if stored.own(self.gateway) == intended:
            self._done(account, write)
        elif not account.flying:
            account.sent, account.doubted, account.stale = None, False, False

    def _done(self, account: _Account, write: UsageWrite) -> None:
        """Drop what is stored from `held`; what was charged meanwhile is at most as old as the write."""
        held = {month: spent - write.delta.get(month, NOTHING) for month, spent in account.held.items()}
        account.held = {month: spent for month, spent in held.items() if spent}
        account.since = account.sent_at if account.held else None
        account.sent, account.flying, account.doubted, account.stale = None, False, False, False


def _may_write(account: _Account) -> bool:
    if account.sent is not None:
        return not account.flying and not account.stale
    return account.stored is not None and bool(account.stored.version)


def _over(tenant: ResolvedTenant, due: UsageAmount, need: UsageAmount, month: str) -> RequestError | None:
    tokens, dollars = tenant.monthly_tokens, tenant.monthly_dollars
    if tokens is not None and due.tokens + need.tokens > tokens:
        left, more = f"{tokens} tokens {max(tokens - due.tokens, 0)} are left", f"{need.tokens}"
    elif dollars is not None and (due.dollars >= dollars or due.dollars + need.dollars > dollars):
        left, more = f"${dollars:f} ${max(dollars - due.dollars, ZERO):.6f} are left", f"${need.dollars:.6f}"
    else:
        return None
    why = f"Of your monthly budget of {left}, and this request may use {more}"
    return RequestError(Code.INSUFFICIENT_QUOTA, f"{why}; the month ends at {rfc3339(end_of(month))}.")
