"""`GET /v1/tenants`, `/v1/queues`, `/v1/workers`, `/v1/services`: the views, as pages of versioned JSON."""

from collections.abc import Iterable
from typing import Annotated

from fastapi import FastAPI, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from paceline_core.clock import Clock, rfc3339
from paceline_core.registry.enums import RequestClass
from paceline_gateway.admin.pages import queues, services, tenants, workers
from paceline_gateway.admin.snapshot import MOST, USUAL, AdminSnapshot, PageQuery
from paceline_gateway.admin.views import Page, Queues, Services, Tenants, Workers
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.proxy.request_manager import RequestManager

NAME = 512


class _List(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=USUAL, ge=1, le=MOST)
    after: str = Field(default="", max_length=NAME)


class TenantsQuery(_List):
    """`busy`: only tenants that have used something of their limits lately."""

    busy: bool = False

    @property
    def asked(self) -> PageQuery:
        """As the views want it."""
        return PageQuery(self.limit, self.after)


class ServicesQuery(_List):
    """`service`: `namespace/name`, that one alone."""

    service: str = Field(default="", max_length=NAME)

    @property
    def asked(self) -> PageQuery:
        """As the views want it."""
        return PageQuery(self.limit, self.after, self.service)


def add_views(app: FastAPI, requests: RequestManager, name: str, clock: Clock) -> None:
    """Add the routes."""

    def state() -> AdminSnapshot:
        return see(requests, name, clock)

    @app.get("/v1/tenants", response_model=Tenants)
    async def all_tenants(query: Annotated[TenantsQuery, Query()]) -> Response:
        """Limits, what is left of them, months to date, open requests."""
        return _json(tenants(state(), query.asked, busy=query.busy))

    @app.get("/v1/queues", response_model=Queues)
    async def all_queues(query: Annotated[ServicesQuery, Query()]) -> Response:
        """Lines by service and class."""
        return _json(queues(state(), query.asked))

    @app.get("/v1/workers", response_model=Workers)
    async def all_workers(query: Annotated[ServicesQuery, Query()]) -> Response:
        """Workers as this gateway sees them."""
        return _json(workers(state(), query.asked))

    @app.get("/v1/services", response_model=Services)
    async def all_services(query: Annotated[ServicesQuery, Query()]) -> Response:
        """What came, what was kept of the promises, how long it took, since the start."""
        return _json(services(state(), query.asked))


def see(requests: RequestManager, name: str, clock: Clock) -> AdminSnapshot:
    """A gateway at this moment."""
    return AdminSnapshot(
        gateway=name,
        now=clock.monotonic(),
        time=rfc3339(clock.utc()),
        services=requests.registry.services,
        snapshot=requests.registry.snapshot,
        quotas=requests.quotas,
        ledger=requests.billing.ledger,
        reservations=requests.reservations,
        streaming=_streaming(requests.requests),
    )


def _streaming(requests: Iterable[ActiveRequest]) -> dict[tuple[str, RequestClass], int]:
    """Output tokens so far, by service and class."""
    found: dict[tuple[str, RequestClass], int] = {}
    for request in requests:
        if request.service is not None and request.ticket is not None:
            place = (request.service.key, request.ticket.request_class)
            found[place] = found.get(place, 0) + request.machine.meter.output
    return found


def _json(page: Page) -> Response:
    """Written once: FastAPI would check each answer anew."""
    return Response(page.model_dump_json(), media_type="application/json")
