"""Leases: one holder at a time, judged by our own monotonic clock and never by another one's wall clock.

A lease is taken when nobody holds it, when it is ours already, or when its record did not change for its whole duration
since we first saw it in this form. Every write is guarded by the resourceVersion that was read, so of two that try at
once one succeeds. A write that timed out but was carried out is found to be ours at the next try.
Hole: a holder suspended past its duration does not know that it lost; the fence is the resourceVersion of its writes.

Who may write: the holder of a Lease, as long as it could renew in time.

Known times only: a renewal counts from before its request is sent, so the server's copy is never older than ours. A
lease that cannot be renewed is used for `USABLE` of its life; the rest is for a write that is under way to end before
anybody else may begin. One that somebody else holds ends all writes at once.
Known hole: what was sent in time and is longer than that on its way arrives beside the next leader's writes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Protocol

from paceline_core.clock import Clock
from paceline_core.errors import Conflict, NotFound, PacelineError
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest, ObjectKey
from paceline_core.telemetry import FaultLog, get_logger

if TYPE_CHECKING:
    from paceline_core.kube.client.client import KubeClient  # aiohttp, which local mode does without

USABLE: Final = 2 / 3
_FAULT = "the lease could not be renewed"
_log = get_logger(__name__)


class LeaseApi(Protocol):
    """What is asked of the API server; a Cluster can, and so can Leases alone."""

    async def lease(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew; False while somebody else holds it."""
        ...

    async def release(self, name: str, holder: str) -> None:
        """Give it back."""
        ...


class LeaderElector:
    """`renew` the lease `name` again and again; `leads` says at any time whether to write. `holder` is unique."""

    def __init__(self, api: LeaseApi, name: str, holder: str, ttl_s: float, clock: Clock) -> None:
        self.elsewhere = False
        """Whether somebody else is known to hold it."""
        self._api = api
        self._name = name
        self._holder = holder
        self._ttl_s = ttl_s
        self._clock = clock
        self._complaints = FaultLog(_log)
        self._renewed: float | None = None
        self._told = False

    @property
    def leads(self) -> bool:
        """Whether the lease is ours and was renewed in time."""
        return self.renewed_within(self._ttl_s * USABLE)

    @property
    def answered(self) -> bool:
        """Whether the last try was answered, whatever the answer."""
        return not self._complaints.standing

    def renewed_within(self, seconds: float) -> bool:
        """Whether the lease is ours and was renewed so lately."""
        return self._renewed is not None and self._clock.monotonic() - self._renewed < seconds

    async def renew(self) -> bool:
        """Take or renew it once; whether the answer was that it is ours."""
        asked, held = self._clock.monotonic(), False
        try:
            held = await self._api.lease(self._name, self._holder, self._ttl_s)
        except PacelineError as error:
            self._complaints.begin(_FAULT, str(error))
        else:
            self._complaints.end(_FAULT)
            self._renewed, self.elsewhere = asked if held else None, not held
        self._tell()
        return held

    async def resign(self) -> None:
        """Give it back, so that the next one need not wait for its end."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            await self._api.release(self._name, self._holder)
        except PacelineError as error:
            _log.info("the lease runs out by itself", extra={"reason": str(error)})

    def _tell(self) -> None:
        if self.leads is not self._told:
            self._told = self.leads
            _log.info("leading" if self._told else "standing by", extra={"holder": self._holder})


LEASE: Final = RESOURCES["Lease"]


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A record of somebody else, and when (monotonic) we first saw it in this form."""

    version: str
    since: float


@dataclass(frozen=True, slots=True)
class DesiredLease:
    """Who wants it, for how long, and the wall time that a write says."""

    holder: str
    ttl_s: float
    utc: datetime


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """`spec` to write, or None to wait; `seen` to remember until the next try."""

    spec: Manifest | None
    seen: ObservedLease | None


class LeaseClient:
    """The leases of one namespace."""

    def __init__(self, api: "KubeClient", namespace: str, clock: Clock) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._seen: dict[str, ObservedLease | None] = {}

    async def lease(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew; False while somebody else holds it. Raises Unreachable or Forbidden."""
        key, wish = ObjectKey(self._namespace, name), DesiredLease(holder, ttl_s, self._clock.utc())
        try:
            found = await self._api.get(LEASE, key)
        except NotFound:
            return await self._create(key, wish)
        made = claim(found, wish, self._seen.get(name), self._clock.monotonic())
        self._seen[name] = made.seen
        return made.spec is not None and await self._write(found, made.spec)

    async def holder(self, name: str) -> str:
        """Who holds it, or held it last; empty when nobody ever did. Raises Unreachable or Forbidden."""
        try:
            found = await self._api.get(LEASE, ObjectKey(self._namespace, name))
        except NotFound:
            return ""
        return str((found.get("spec") or {}).get("holderIdentity") or "")

    async def release(self, name: str, holder: str) -> None:
        """Give it back; nothing happens when it is not ours."""
        try:
            found = await self._api.get(LEASE, ObjectKey(self._namespace, name))
        except NotFound:
            return
        spec = found.get("spec") or {}
        if spec.get("holderIdentity") == holder:
            await self._write(found, {**spec, "holderIdentity": "", "leaseDurationSeconds": 1})

    async def _create(self, key: ObjectKey, wish: DesiredLease) -> bool:
        spec = _held({}, wish)
        body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": {"name": key.name}, "spec": spec}
        try:
            await self._api.create(LEASE, key.namespace, body)
        except Conflict:
            return False
        return True

    async def _write(self, found: Manifest, spec: Manifest) -> bool:
        metadata = found["metadata"]
        try:
            await self._api.replace(LEASE, ObjectKey(self._namespace, metadata["name"]), {**found, "spec": spec})
        except (Conflict, NotFound):
            return False
        return True


def claim(found: Manifest, wish: DesiredLease, seen: ObservedLease | None, now: float) -> LeaseClaim:
    """What to do about a lease as it was read: pure."""
    spec: Mapping[str, Any] = found.get("spec") or {}
    version = found["metadata"]["resourceVersion"]
    other = spec.get("holderIdentity") or ""
    if other in {"", wish.holder}:
        return LeaseClaim(_held(spec, wish), None)
    if seen is None or seen.version != version:
        return LeaseClaim(None, ObservedLease(version, now))
    if now - seen.since < float(spec.get("leaseDurationSeconds") or wish.ttl_s):
        return LeaseClaim(None, seen)
    return LeaseClaim(_held(spec, wish), None)


def _held(spec: Mapping[str, Any], wish: DesiredLease) -> Manifest:
    moment = wish.utc.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    duration = max(1, math.ceil(wish.ttl_s))
    renewed = {**spec, "holderIdentity": wish.holder, "leaseDurationSeconds": duration, "renewTime": moment}
    if spec.get("holderIdentity") == wish.holder:
        return renewed
    return {**renewed, "acquireTime": moment, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + bool(spec)}
