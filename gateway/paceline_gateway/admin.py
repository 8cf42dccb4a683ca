"""The admin port: metrics, health, readiness, the demand stream, and the workers as this gateway sees them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, StreamingResponse

from paceline_core.auth import TrustFile
from paceline_core.auth.hop import HEADER as HOP_HEADER
from paceline_core.clock import Clock, rfc3339
from paceline_core.errors import Code, RequestError, answer
from paceline_core.telemetry import Metrics
from paceline_gateway.demand import SUBSCRIBERS, demand_lines
from paceline_gateway.desk import Desk
from paceline_gateway.floor import Floor
from paceline_gateway.routing.worker import Worker
from paceline_gateway.stores.endpoint import add_quota
from paceline_gateway.stores.peers import PeerStore

AUDIENCE = "paceline/gateway"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the admin port shows. `unready` gives the reason why the gateway is not ready, or an empty string."""

    floor: Floor
    metrics: Metrics
    clock: Clock
    name: str
    trust: TrustFile
    unready: Callable[[], str]
    peers: PeerStore | None = None


def create_admin(seen: Seen) -> FastAPI:
    """The application."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None, exception_handlers={RequestError: _refused})
    floor = seen.floor
    _add_probes(app, seen.unready)
    _add_demand(app, seen)
    if seen.peers is not None:
        add_quota(app, seen.peers, seen.trust)

    @app.get("/metrics")
    async def scrape(request: Request) -> Response:
        """For Prometheus."""
        floor.show()
        body, content_type = seen.metrics.exposition(request.headers.get("accept", ""))
        return Response(body, media_type=content_type)

    @app.get("/debug/workers")
    async def workers() -> JSONResponse:
        """Per service: who waits, and each worker with what is believed of it."""
        now = seen.clock.monotonic()
        return JSONResponse({key: _desk(desk, floor, now) for key, desk in floor.desks.items()})

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


def _add_demand(app: FastAPI, seen: Seen) -> None:
    floor, clock, started = seen.floor, seen.clock, rfc3339(seen.clock.utc())

    @app.get("/internal/demand")
    async def demand(request: Request) -> StreamingResponse:
        """Lines of DemandReport for a bearer of the autoscaler's hop token."""
        hop = seen.trust.hop(request.headers.get(HOP_HEADER, ""))
        if hop is None or hop.issuer != "autoscaler":
            raise RequestError(Code.INVALID_API_KEY, f"Send {HOP_HEADER}: a token of the autoscaler for {AUDIENCE}.")
        if floor.bell.readers >= SUBSCRIBERS:
            raise RequestError(Code.NO_CAPACITY, f"{SUBSCRIBERS} readers are here already.", retry_after=5.0)
        lines = demand_lines(seen.name, started, floor.desks.values, clock.monotonic, floor.bell)
        return StreamingResponse(lines, media_type="application/x-ndjson")


def _desk(desk: Desk, floor: Floor, now: float) -> dict[str, Any]:
    return {
        "waiting": {name: len(line) for name, line in desk.dispatcher.lines.items()},
        "held": desk.dispatcher.held(now),
        "bytes_per_token": round(desk.ratio.bytes_per_token, 3),
        "workers": [_worker(worker, floor, now) for worker in desk.fleet],
    }


def _worker(worker: Worker, floor: Floor, now: float) -> dict[str, Any]:
    report = worker.report
    return {
        "name": worker.name,
        "pool": worker.endpoint.pool,
        "standing": worker.standing(now, floor.limits.load_silence_s),
        "in_flight": worker.in_flight,
        "slots": report.slots if report else None,
        "backlog_tokens": worker.backlog,
        "backlog_s": round(worker.backlog_s, 4),
        "heard_s_ago": round(now - worker.heard, 3) if report else None,
        "circuit": worker.breaker.state(now),
    }


async def _refused(_: Request, error: Exception) -> Response:
    said = answer(error)
    return Response(said.body, said.status, said.headers)
