"""The admin port's application: probes, metrics, demand, the quota that peers ask for, the views, drain and log level.

Whoever reaches the port may read, which is the network policy's affair: nothing here is secret. What changes anything,
and what parts say to each other, needs an internal token. It serves on the loop of the token path, so every answer is
small and every body is refused by its length before it is read.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import StreamingResponse
from starlette.exceptions import HTTPException

from paceline_core.auth import TrustBundle
from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Code, RequestError, error_response
from paceline_core.telemetry import Metrics
from paceline_gateway.admin.auth import require
from paceline_gateway.admin.control import AdminControl, add_control
from paceline_gateway.admin.routes import add_views
from paceline_gateway.proxy.request_manager import RequestManager
from paceline_gateway.quota_store.peer import PeerStore, add_quota
from paceline_gateway.services.demand_report import SUBSCRIBERS, demand_lines


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


def create_admin(seen: AdminDeps) -> FastAPI:
    """The application."""
    app = FastAPI(
        title="paceline gateway, admin port",
        docs_url=None,
        redoc_url=None,
        openapi_url="/v1/openapi.json",
        exception_handlers={RequestError: _refused, HTTPException: _no_route, RequestValidationError: _invalid},
    )
    requests = seen.requests
    _add_probes(app, seen.unready)
    _add_demand(app, seen)
    add_views(app, requests, seen.name, seen.clock)
    add_control(app, seen.control, seen.trust)
    if seen.peers is not None:
        add_quota(app, seen.peers, seen.trust)

    @app.get("/metrics")
    async def scrape(request: Request) -> Response:
        """For Prometheus."""
        requests.show()
        body, content_type = seen.metrics.exposition(request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    return app


def _add_probes(app: FastAPI, unready: Callable[[], str]) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        """Alive, whatever else."""
        return Response("ok\n", media_type="text/plain")

    @app.get("/readyz")
    async def readyz() -> Response:
        """Ready: everything has been listed once, and nothing drains."""
        reason = unready()
        return Response(f"{reason or 'ok'}\n", status_code=503 if reason else 200, media_type="text/plain")


def _add_demand(app: FastAPI, seen: AdminDeps) -> None:
    registry, clock, started = seen.requests.registry, seen.clock, rfc3339(seen.clock.utc())

    @app.get("/internal/demand")
    async def demand(request: Request) -> StreamingResponse:
        """Lines of DemandReport for a bearer of the autoscaler's internal token."""
        require(request, seen.trust, "autoscaler", "the autoscaler")
        if registry.changes.readers >= SUBSCRIBERS:
            raise RequestError(Code.NO_CAPACITY, f"{SUBSCRIBERS} readers are here already.", retry_after=5.0)
        lines = demand_lines(seen.name, started, registry.services.values, clock.monotonic, registry.changes)
        return StreamingResponse(lines, media_type="application/x-ndjson")


async def _refused(_: Request, error: Exception) -> Response:
    answer = error_response(error)
    return Response(answer.body, answer.status, answer.headers)


async def _no_route(request: Request, error: Exception) -> Response:
    """What FastAPI refuses by itself, as errors are told everywhere else."""
    wrong_method = isinstance(error, HTTPException) and error.status_code == 405
    code = Code.METHOD_NOT_ALLOWED if wrong_method else Code.ROUTE_NOT_FOUND
    answer = await _refused(request, RequestError(code, f"There is no {request.method} {request.url.path} here."))
    allowed = error.headers if isinstance(error, HTTPException) else None
    answer.headers.update(allowed or {})
    return answer


async def _invalid(request: Request, error: Exception) -> Response:
    """The first field that is wrong."""
    problem = error.errors()[0] if isinstance(error, RequestValidationError) else {}
    field = ".".join(str(part) for part in problem.get("loc", ())[1:])
    message = f"{field or 'the body'}: {problem.get('msg', 'is wrong')}"
    return await _refused(request, RequestError(Code.INVALID_REQUEST, message, param=field or None))
