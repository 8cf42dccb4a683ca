"""What one request is given by its gateway: plain callables, so that it speaks one way."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from paceline_gateway.api.admission import AdmittedRequest
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection_pool import ConnectionPool
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.quota.types import QuotaUsage, Reservation
from paceline_gateway.request.types import RequestRecord, Timeouts
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.services.worker_deaths import WorkerDeaths
from paceline_gateway.telemetry.trace import RequestTracing

if TYPE_CHECKING:
    from paceline_gateway.proxy.active_request import ActiveRequest


class Placement(NamedTuple):
    """A request at one service: the terms it is admitted under there and its place in the queue."""

    service: ServiceState
    admission: AdmittedRequest
    ticket: QueuedRequest


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What a request needs of its gateway.

    `dispatch`: the service has more room, or more requests wait. `fall_back`: the placement at another destination
    that takes a request which workers have failed, if one should; `last`: its next attempt here is its last.
    `refunded`: header lines with the tenant's limits once so much of a reservation is charged. `settle`: it has ended.
    """

    limits: HttpLimits
    timeouts: Timeouts
    pool: ConnectionPool
    tracing: RequestTracing
    deaths: WorkerDeaths
    now: Callable[[], float]
    internal_token: Callable[[str], str]
    dispatch: Callable[[ServiceState], None]
    fall_back: "Callable[[ActiveRequest, bool], Placement | None]"
    refunded: Callable[[Reservation, QuotaUsage], bytes]
    settle: "Callable[[ActiveRequest, RequestRecord], None]"
