"""What a call needs of the gateway that it came to."""

from typing import TYPE_CHECKING, Protocol

from paceline_gateway.config import Limits
from paceline_gateway.deaths import Deaths
from paceline_gateway.desk import Desk
from paceline_gateway.http.pool import Pool
from paceline_gateway.quota.nouns import Use
from paceline_gateway.requests.nouns import Record, Waits
from paceline_gateway.telemetry.trace import Tracing

if TYPE_CHECKING:
    from paceline_gateway.proxy import Call


class Front(Protocol):
    """What a call needs of its gateway."""

    limits: Limits
    waits: Waits
    pool: Pool
    tracing: Tracing
    deaths: Deaths

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def internal_token(self, service: str) -> str:
        """A token for this service's workers."""
        ...

    def moved(self, desk: Desk) -> None:
        """Somebody joined the queue or a worker has more room."""
        ...

    def seek(self, call: "Call", *, last: bool) -> None:
        """Workers failed it, and another destination may take it; `last`: its next dispatch is its last."""
        ...

    def refunded(self, call: "Call", used: Use) -> bytes:
        """Header lines that tell where its tenant stands, once of its reservation so much is charged."""
        ...

    def ended(self, call: "Call", record: Record) -> None:
        """A call is over."""
        ...
