"""Leases: one holder at a time, judged by our own monotonic clock and never by another one's wall clock.

A lease is taken when nobody holds it, when it is ours already, or when its record did not change for its whole duration
since we first saw it in this form. Every write is guarded by the resourceVersion that was read, so of two that try at
once one succeeds. A write that timed out but was carried out is found to be ours at the next try.
Hole: a holder suspended past its duration does not know that it lost; the fence is the resourceVersion of its writes.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from paceline_core.clock import Clock
from paceline_core.errors import Conflict, NotFound
from paceline_core.kube.api.resource import RESOURCES
from paceline_core.kube.api.server import KubeClient
from paceline_core.kube.cluster import Manifest, ObjectKey

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

    def __init__(self, api: KubeClient, namespace: str, clock: Clock) -> None:
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
