"""One gateway's account of every tenant's month: what all have used, what is reserved, what is not stored yet. Pure.

The API server's status is the truth, and a gateway holds only what it has not added to it: a write adds that to the
gateway's own entry, guarded by the version that it was reckoned from. So a restart goes on from what is there, nobody's
numbers are lost or counted twice, and it does no harm to fold an entry whose gateway lives. A write without an answer
is sent again as it was: the guard lets it happen once, and the next status that is seen shows whether it did.
Invariant: what all gateways were charged = what is stored + what each still holds.
A budget counts all that is stored, what this gateway holds, and what its open requests have reserved; so it is passed
by at most what other gateways settle between two of their writes, what they have open, and what is open here may use
beyond what it has reserved (`cost.py` bounds that).
Known hole: who dies without a word loses what it held, at most a minute's use while the API server answers.
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

    `sent` is a write that is under way (`flying`) or in doubt, because it had no answer; if then it is contested too
    (`stale`), only the next status can tell. `passed` is the version that the last good write replaced.
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
        """Turn the page when the month is over. What is charged from now on counts for the new one."""
        month = month_of(moment)
        if month != self.month:
            self.month = month
            for account in self._accounts.values():
                account.total = NOTHING if account.stored is None else account.stored.total(month)

    def reserve(self, request: int, tenant: ResolvedTenant, need: UsageAmount) -> RequestError | None:
        """Set aside what a request may use of a monthly budget, or say why not. `release` it in the end."""
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
        """Why not even so little fits into a monthly budget; None where it does."""
        if not tenant.budgeted:
            return None
        return _over(tenant, self.used(tenant.name) + self.reserved(tenant.name), least, self.month)

    def release(self, request: int) -> None:
        """A request has ended: what it has used is charged, and nothing is set aside for it any more."""
        found = self._reservations.pop(request, None)
        if found is not None:
            account, need = found
            account.reserved -= need

    def charged(self, tenant: str, spent: UsageAmount, now: float) -> None:
        """A request has used so much. Of a tenant that does not exist any more nothing is kept."""
        account = self._accounts.get(tenant)
        if account is None or not spent:
            return
        account.held[self.month] = account.held.get(self.month, NOTHING) + spent
        if account.since is None:
            account.since = now

    def used(self, tenant: str) -> UsageAmount:
        """This month's use, by all gateways as far as is known."""
        account = self._accounts.get(tenant)
        return NOTHING if account is None else account.total + account.held.get(self.month, NOTHING)

    def reserved(self, tenant: str) -> UsageAmount:
        """What the open requests here may use of a budget; nothing where there is none."""
        account = self._accounts.get(tenant)
        return NOTHING if account is None else account.reserved

    def on_status(self, tenant: str, stored: StoredUsage) -> None:
        """The API server has this of a tenant. What a good write has replaced since is not news."""
        account = self._accounts.setdefault(tenant, _Account())
        if stored.version and stored.version == account.passed:
            return
        account.stored, account.total = stored, stored.total(self.month)
        if account.sent is not None and stored.version != account.sent.version:
            self._resolve(account, account.sent, stored)

    def gone(self, tenant: str) -> None:
        self._accounts.pop(tenant, None)

    def keep(self, tenants: Mapping[str, object]) -> None:
        """Forget all but these tenants."""
        for tenant in self._accounts.keys() - tenants.keys():
            self.gone(tenant)

    def due(self, now: float, age_s: float) -> list[str]:
        """Tenants to write now: those that hold something for so long, and writes to be sent again; oldest first."""
        found = [
            (account.since, tenant)
            for tenant, account in self._accounts.items()
            if account.since is not None and now - account.since >= age_s and _may_write(account)
        ]
        return [tenant for _, tenant in sorted(found)]

    def begin(self, tenant: str, moment: datetime, now: float) -> UsageWrite | None:
        """What to write; None if there is nothing, or what is there is not known. End it with one of the next three."""
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
        """It is stored. A status seen meanwhile came after it, since nobody else can have written in between."""
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
        """The status was changed before: what it is now tells whether the write had been carried out earlier."""
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
        """Tenants of whom something is not stored yet, and for how long."""
        for tenant, account in self._accounts.items():
            if account.since is not None:
                yield tenant, now - account.since

    def _resolve(self, account: _Account, write: UsageWrite, stored: StoredUsage) -> None:
        """A later status than the one that the write was reckoned from: does it have the write?"""
        intended = StoredUsage("", write.entries).own(self.gateway)
        if stored.own(self.gateway) == intended:
            self._done(account, write)
        elif not account.flying:
            account.sent, account.doubted, account.stale = None, False, False

    def _done(self, account: _Account, write: UsageWrite) -> None:
        """Hold no longer what is stored; what came meanwhile is as old as the write at most."""
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
