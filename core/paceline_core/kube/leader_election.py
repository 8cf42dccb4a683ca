"""Leader election by a Lease: one holder at a time, judged by our own monotonic clock, never by another's wall clock.

A lease is taken if it is free or already ours, or if its record did not change for its whole duration since we first
observed it in this form. Every write is guarded by the resourceVersion that was read, so of two concurrent attempts one
succeeds. A write that timed out but was applied is recognized as ours at the next attempt.

A renewal counts from before its request is sent, so the server's copy is never older than ours. A lease that cannot be
renewed is used for `USABLE` of its duration; in the rest, writes under way can end before another holder may begin. A
lease with another holder ends all writes at once.
Known holes: a holder suspended beyond its duration does not know that it lost (the fence is the resourceVersion of its
writes); a write sent in time that takes longer than that arrives beside the next leader's.
"""

import asyncio
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from paceline_core.clock import Clock
from paceline_core.errors import Conflict, NotFound, PacelineError
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import LeaseApi, Manifest, ObjectKey
from paceline_core.telemetry import FaultLog, get_logger

if TYPE_CHECKING:
    from paceline_core.kube.client.client import KubeClient  # aiohttp, which local mode does not need

USABLE: Final = 2 / 3
RENEWALS: Final = 5
"""Renewals within a lease's duration."""
RETRY_S: Final = 2.0
_FAULT = "the lease could not be renewed"
_log = get_logger(__name__)


class NotLeading(Exception):
    """This process may not write now."""


class LeaderElector:
    """Call `run`, or `renew` repeatedly; `leads` says at any time whether to write. `holder` is unique."""

    def __init__(self, api: LeaseApi, name: str, holder: str, ttl_s: float, clock: Clock) -> None:
        self.elsewhere = False
        """Whether it is known to have another holder."""
        self._api = api
        self._name = name
        self._holder = holder
        self._ttl_s = ttl_s
        self._clock = clock
        self._faults = FaultLog(_log)
        self._renewed: float | None = None
        self._logged = False
        self._won = asyncio.Event()

    @property
    def leads(self) -> bool:
        return self.renewed_within(self._ttl_s * USABLE)

    @property
    def answered(self) -> bool:
        """Whether the last attempt was answered, whatever the answer."""
        return not self._faults.standing

    def renewed_within(self, seconds: float) -> bool:
        return self._renewed is not None and self._clock.monotonic() - self._renewed < seconds

    def check(self) -> None:
        if not self.leads:
            raise NotLeading

    async def wait(self) -> None:
        while not self.leads:
            self._won.clear()
            await self._won.wait()

    async def run(self) -> None:
        pause_s = self._ttl_s / RENEWALS
        while True:
            held = await self.renew()
            await self._clock.sleep(pause_s if held else min(RETRY_S, pause_s))

    async def renew(self) -> bool:
        """Take or renew it once; returns whether the answer was that it is ours."""
        asked, held = self._clock.monotonic(), False
        try:
            held = await self._api.acquire(self._name, self._holder, self._ttl_s)
        except PacelineError as error:
            self._faults.begin(_FAULT, str(error))
        else:
            self._faults.end(_FAULT)
            self._renewed, self.elsewhere = asked if held else None, not held
        if self.leads:
            self._won.set()
        if self.leads is not self._logged:
            self._logged = self.leads
            _log.info("leading" if self._logged else "standing by", extra={"holder": self._holder})
        return held

    async def resign(self) -> None:
        """Release it, so that the next holder need not wait for its end."""
        if self._renewed is None:
            return
        self._renewed = None
        try:
            await self._api.release(self._name, self._holder)
        except PacelineError as error:
            _log.info("the lease was not given back and runs out", extra={"reason": str(error)})


LEASE: Final = RESOURCES["Lease"]


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """Another holder's record, and when (monotonic) we first observed it in this form."""

    version: str
    since: float


@dataclass(frozen=True, slots=True)
class DesiredLease:
    """The desired holder, the duration, and the wall time to write."""

    holder: str
    ttl_s: float
    utc: datetime


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """`spec` to write, or None to wait; `observed` to keep until the next attempt."""

    spec: Manifest | None
    observed: ObservedLease | None


class LeaseClient:
    def __init__(self, api: "KubeClient", namespace: str, clock: Clock) -> None:
        self._api = api
        self._namespace = namespace
        self._clock = clock
        self._observed: dict[str, ObservedLease | None] = {}

    async def acquire(self, name: str, holder: str, ttl_s: float) -> bool:
        """Take or renew; False while it has another holder. Raises Unreachable or Forbidden."""
        key, desired = ObjectKey(self._namespace, name), DesiredLease(holder, ttl_s, self._clock.utc())
        try:
            found = await self._api.get(LEASE, key)
        except NotFound:
            spec = _held({}, desired)
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": {"name": key.name}, "spec": spec}
            try:
                await self._api.create(LEASE, key.namespace, body)
            except Conflict:
                return False
            return True
        made = claim(found, desired, self._observed.get(name), self._clock.monotonic())
        self._observed[name] = made.observed
        return made.spec is not None and await self._write(found, made.spec)

    async def holder(self, name: str) -> str:
        """The current or last holder; empty if there was never one. Raises Unreachable or Forbidden."""
        try:
            found = await self._api.get(LEASE, ObjectKey(self._namespace, name))
        except NotFound:
            return ""
        return str((found.get("spec") or {}).get("holderIdentity") or "")

    async def release(self, name: str, holder: str) -> None:
        """Release it; does nothing if it is not ours."""
        try:
            found = await self._api.get(LEASE, ObjectKey(self._namespace, name))
        except NotFound:
            return
        spec = found.get("spec") or {}
        if spec.get("holderIdentity") == holder:
            await self._write(found, {**spec, "holderIdentity": "", "leaseDurationSeconds": 1})

    async def _write(self, found: Manifest, spec: Manifest) -> bool:
        metadata = found["metadata"]
        try:
            await self._api.replace(LEASE, ObjectKey(self._namespace, metadata["name"]), {**found, "spec": spec})
        except (Conflict, NotFound):
            return False
        return True


def claim(found: Manifest, desired: DesiredLease, observed: ObservedLease | None, now: float) -> LeaseClaim:
    """Decide what to do with a lease as it was read: pure."""
    spec: Mapping[str, Any] = found.get("spec") or {}
    version = found["metadata"]["resourceVersion"]
    other = spec.get("holderIdentity") or ""
    if other in {"", desired.holder}:
        return LeaseClaim(_held(spec, desired), None)
    if observed is None or observed.version != version:
        return LeaseClaim(None, ObservedLease(version, now))
    if now - observed.since < float(spec.get("leaseDurationSeconds") or desired.ttl_s):
        return LeaseClaim(None, observed)
    return LeaseClaim(_held(spec, desired), None)


def _held(spec: Mapping[str, Any], desired: DesiredLease) -> Manifest:
    moment = desired.utc.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
    duration = max(1, math.ceil(desired.ttl_s))
    renewed = {**spec, "holderIdentity": desired.holder, "leaseDurationSeconds": duration, "renewTime": moment}
    if spec.get("holderIdentity") == desired.holder:
        return renewed
    return {**renewed, "acquireTime": moment, "leaseTransitions": int(spec.get("leaseTransitions") or 0) + bool(spec)}
