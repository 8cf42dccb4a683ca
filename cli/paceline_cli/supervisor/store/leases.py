"""Leases: one holder at a time, for a limited time (seconds of a monotonic clock)."""

from dataclasses import dataclass

from paceline_core.errors import Conflict


@dataclass(frozen=True, slots=True)
class Lease:
    """Who holds it, until when."""

    holder: str
    until: float


class Leases:
    """By name; an expired lease is free for anybody."""

    def __init__(self) -> None:
        self._leases: dict[str, Lease] = {}

    def take(self, name: str, holder: str, ttl_s: float, now: float) -> None:
        """Take or renew; raises Conflict while somebody else holds it."""
        held = self._leases.get(name)
        if held and held.holder != holder and now < held.until:
            raise Conflict(f"lease {name} is held by {held.holder} for another {held.until - now:.1f} s")
        self._leases[name] = Lease(holder, now + ttl_s)

    def holder(self, name: str) -> str:
        """Who holds it, or held it last; empty when it is free."""
        held = self._leases.get(name)
        return "" if held is None else held.holder

    def release(self, name: str, holder: str) -> None:
        """Give it back; nothing happens when it is somebody else's."""
        if (held := self._leases.get(name)) and held.holder == holder:
            del self._leases[name]
