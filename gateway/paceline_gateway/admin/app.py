"""The admin port's application: probes, metrics, demand, the peers' quota exchange, the views, drain and log level.

Every client that the network policy lets reach the port may read: nothing here is secret. Changes, and the calls of
other components, need an internal token. The port shares its event loop with the token path, so every answer is small
and every body is refused by its length before it is read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

from paceline_core.auth import TrustBundle
from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Code, RequestError, error_response
from paceline_core.registry.enums import RequestClass
from paceline_core.telemetry import Metrics
from paceline_gateway.admin.control import AdminControl, add_control, require
from paceline_gateway.admin.pages import (
    DEFAULT_PAGE,
    MAX_PAGE,
    AdminSnapshot,
    PageQuery,
    queues,
    services,
    tenants,
    workers,
)
from paceline_gateway.admin.views import Page, Queues, Services, Tenants, Workers
from paceline_gateway.proxy.request_manager import RequestManager
from paceline_gateway.quota_store.peer import PeerStore, add_quota
from paceline_gateway.services.demand_report import SUBSCRIBERS, demand_lines

NAME = 512


class _List(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    limit: int = Field(default=DEFAULT_PAGE, ge=1, le=MAX_PAGE)
    after: str = Field(default="", max_length=NAME)


class TenantsQuery(_List):
    """`busy`: only tenants that have used some of their limits recently."""

    busy: bool = False


class ServicesQuery(_List):
    """`service`: only this service, as `namespace/name`."""

    service: str = Field(default="", max_length=NAME)

    @property
    def asked(self) -> PageQuery:
        return PageQuery(self.limit, self.after, self.service)


def add_views(app: FastAPI, requests: RequestManager, name: str, clock: Clock) -> None:

    def state() -> AdminSnapshot:
        return see(requests, name, clock)

    @app.get("/v1/tenants", response_model=Tenants)
    async def all_tenants(query: Annotated[TenantsQuery, Query()]) -> Response:
        """Each tenant's limits, what is left of them, its month to date, its open requests."""
        return _json(tenants(state(), PageQuery(query.limit, query.after), busy=query.busy))

    @app.get("/v1/queues", response_model=Queues)
    async def all_queues(query: Annotated[ServicesQuery, Query()]) -> Response:
        """The queues by service and class."""
        return _json(queues(state(), query.asked))

    @app.get("/v1/workers", response_model=Workers)
    async def all_workers(query: Annotated[ServicesQuery, Query()]) -> Response:
        """Workers as this gateway sees them."""
        return _json(workers(state(), query.asked))

    @app.get("/v1/services", response_model=Services)
    async def all_services(query: Annotated[ServicesQuery, Query()]) -> Response:
        """Requests, SLO verdicts and latencies since the start."""
        return _json(services(state(), query.asked))


def see(requests: RequestManager, name: str, clock: Clock) -> AdminSnapshot:
    """The gateway's state at this moment."""
    streaming: dict[tuple[str, RequestClass], int] = {}
    for request in requests.requests:
        if request.service is not None and request.queued is not None:
            place = (request.service.key, request.queued.request_class)
            streaming[place] = streaming.get(place, 0) + request.machine.meter.output
    return AdminSnapshot(
        gateway=name,
        now=clock.monotonic(),
        time=rfc3339(clock.utc()),
        services=requests.registry.services,
        snapshot=requests.registry.snapshot,
        quotas=requests.quotas,
        ledger=requests.billing.ledger,
        reservations=requests.reservations,
        streaming=streaming,
    )


def _json(page: Page) -> Response:
    """Serialized directly: FastAPI would validate each answer again."""
    return Response(page.model_dump_json(), media_type="application/json")


@dataclass(frozen=True, slots=True)
class AdminDeps:
    """What the admin port shows. `unready` gives the reason why the gateway is not ready, or an empty string."""

    requests: RequestManager
    metrics: Metrics
    clock: Clock
    name: str
    trust: TrustBundle
    unready: Callable[[], str]
    control: AdminControl
    peers: PeerStore | None = None


def create_admin(deps: AdminDeps) -> FastAPI:
    app = FastAPI(
        title="paceline gateway, admin port",
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        exception_handlers={RequestError: _refused, HTTPException: _no_route, RequestValidationError: _invalid},
    )
    requests = deps.requests
    _add_probes(app, deps.unready)
    _add_demand(app, deps)
    add_views(app, requests, deps.name, deps.clock)
    add_control(app, deps.control, deps.trust)
    if deps.peers is not None:
        add_quota(app, deps.peers, deps.trust)

    @app.get("/metrics")
    async def scrape(request: Request) -> Response:
        """The metrics, for Prometheus."""
        requests.show()
        body, content_type = deps.metrics.exposition(request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    return app


def _add_probes(app: FastAPI, unready: Callable[[], str]) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        """The process is alive."""
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Ready: everything has been listed once, and nothing drains."""
        reason = unready()
        return Response(f"{reason or 'ok'}\n", status_code=503 if reason else 200, media_type="text/plain")


def _add_demand(app: FastAPI, deps: AdminDeps) -> None:
    registry, clock, started = deps.requests.registry, deps.clock, rfc3339(deps.clock.utc())

    @app.get("/internal/demand")
    async def demand(request: Request) -> StreamingResponse:
        """Lines of DemandReport for a client with the autoscaler's internal token."""
        require(request, deps.trust, "autoscaler", "the autoscaler")
        if registry.changes.readers >= SUBSCRIBERS:
            raise RequestError(Code.NO_CAPACITY, f"{SUBSCRIBERS} readers are here already.", retry_after=5.0)
        lines = demand_lines(deps.name, started, registry.services.values, clock.monotonic, registry.changes)
        return StreamingResponse(lines, media_type="application/x-ndjson")


async def _refused(_: Request, error: Exception) -> Response:
    answer = error_response(error)
    return Response(answer.body, answer.status, answer.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    """Refuse what FastAPI itself would refuse, with an error in our own format."""
    wrong_method = isinstance(error, HTTPException) and error.status_code == 405
    code = Code.METHOD_NOT_ALLOWED if wrong_method else Code.ROUTE_NOT_FOUND
    answer = await _refused(request, RequestError(code, f"There is no {request.method} {request.url.path} here."))
    allowed = error.headers if isinstance(error, HTTPException) else None
    answer.headers.update(allowed or {})
    return answer


async def _invalid(request: Request, error: Exception) -> Response:
    """The error for the first invalid field."""
    problem = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    field = ".".join(str(part) for part in problem.get("loc", ())[1:])
    message = f"{field or 'the body'}: {problem.get('msg', 'is wrong')}"
    return await _refused(request, RequestError(Code.INVALID_REQUEST, message, param=field or None))
