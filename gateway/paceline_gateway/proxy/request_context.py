"""What a call needs of the gateway that it came to."""

from typing import TYPE_CHECKING, Protocol

from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection_pool import ConnectionPool
from paceline_gateway.proxy.worker_deaths import WorkerDeaths
from paceline_gateway.quota.types import QuotaUsage
from paceline_gateway.request.types import RequestRecord, Timeouts
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.telemetry.trace import RequestTracing

if TYPE_CHECKING:
    from paceline_gateway.proxy.active_request import ActiveRequest


class RequestContext(Protocol):
    """What a call needs of its gateway."""

    limits: HttpLimits
    waits: Timeouts
    pool: ConnectionPool
    tracing: RequestTracing
    deaths: WorkerDeaths

    def now(self) -> float:
        """Monotonic seconds."""
        ...

    def internal_token(self, service: str) -> str:
        """A token for this service's workers."""
        ...

    def moved(self, desk: ServiceState) -> None:
        """Somebody joined the queue or a worker has more room."""
        ...

    def seek(self, call: "ActiveRequest", *, last: bool) -> None:
        """Workers failed it, and another destination may take it; `last`: its next dispatch is its last."""
        ...

    def refunded(self, call: "ActiveRequest", used: QuotaUsage) -> bytes:
        """Header lines that tell where its tenant stands, once of its reservation so much is charged."""
        ...

    def ended(self, call: "ActiveRequest", record: RequestRecord) -> None:
        """A call is over."""
        ...
