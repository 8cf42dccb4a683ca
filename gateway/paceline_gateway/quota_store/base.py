"""What a shared pool is to a gateway. Every call ends within its limit or raises Unreachable, in plain words."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from paceline_gateway.quota.types import LeaseGrant, LeaseRequest

SUMS: Final = 4096
"""Sums of what tenants were served that a store keeps; with one more all of them begin anew."""


class CounterStore(Protocol):
    """Where the counters are kept."""

    def start(self) -> None:
        """Begin what it does beside its calls."""
        ...

    async def hello(self, holder: str, ttl_s: float) -> int:
        """This gateway is alive for so long, or leaves (0): how many there are."""
        ...

    async def exchange(self, asks: Sequence[LeaseRequest]) -> list[LeaseGrant]:
        """Carry out asks, each once however often it is sent, and answer in their order."""
        ...

    async def share(self, served: Mapping[str, float]) -> Mapping[str, float]:
        """Add what tenants were served here, and answer with the sums of all gateways; once, never sent again."""
        ...

    async def close(self) -> None:
        """Leave nothing open."""
        ...
