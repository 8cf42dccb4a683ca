"""What the views are made from: a gateway's own objects, read and not changed; and the cut of a list into pages. Pure.

Every list has a cap: an answer is made on the token path's loop and holds it up, for some 20 ms at the very most.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from paceline_core.registry.enums import RequestClass
from paceline_gateway.quota.manager import QuotaManager
from paceline_gateway.quota.types import Reservation
from paceline_gateway.routing.config_snapshot import ConfigSnapshot
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.usage.ledger import UsageLedger

MOST = 200
USUAL = 50
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AdminSnapshot:
    """All that may be seen at one moment: `now` is monotonic, `time` the same moment in RFC 3339.

    `streaming`: by service and class the output tokens so far of answers that have not ended.
    """

    gateway: str
    now: float
    time: str
    services: Mapping[str, ServiceState]
    snapshot: ConfigSnapshot
    quotas: QuotaManager
    ledger: UsageLedger
    reservations: Iterable[Reservation]
    streaming: Mapping[tuple[str, RequestClass], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PageQuery:
    """What part of a list: those behind `after` in order, at most `limit`; `service` narrows what has one."""

    limit: int = USUAL
    after: str = ""
    service: str = ""

    def services(self, state: AdminSnapshot) -> list[ServiceState]:
        """The services that are asked for."""
        return [service for key, service in state.services.items() if self.service in ("", key)]


@dataclass(frozen=True, slots=True)
class PageOf(Generic[T]):
    """A part of `total` items; whether more follow."""

    items: tuple[T, ...]
    total: int
    truncated: bool


def paginate(items: Iterable[T], name: Callable[[T], str], asked: PageQuery) -> PageOf[T]:
    """The part of them that is asked for, by name."""
    ordered = sorted(items, key=name)
    behind = [item for item in ordered if name(item) > asked.after] if asked.after else ordered
    return PageOf(tuple(behind[: asked.limit]), len(ordered), len(behind) > asked.limit)
