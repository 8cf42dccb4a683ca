"""The autoscaler's own port: health, metrics, and the decisions with all that led to them."""

from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from paceline_autoscaler.ledger import KEPT, entry_json
from paceline_autoscaler.loop import Autoscaler
from paceline_autoscaler.subject import ScalerDeps

STUCK_S = 60.0


def make_app(autoscaler: Autoscaler, desk: ScalerDeps) -> FastAPI:
    """`/healthz`: passes go on; `/readyz`: services and workers are known; `/debug/decisions`: newest first."""
    app = FastAPI(openapi_url=None)

    @app.get("/healthz")
    async def healthz() -> Response:
        idle = desk.clock.monotonic() - autoscaler.passed_at
        alive = idle < STUCK_S
        return PlainTextResponse("ok" if alive else f"no pass for {idle:.0f} s", 200 if alive else 503)

    @app.get("/readyz")
    async def readyz() -> Response:
        ready = autoscaler.ready
        return PlainTextResponse("ok" if ready else "services and workers are not listed", 200 if ready else 503)

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        body, content_type = desk.metrics.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    @app.get("/debug/decisions")
    async def decisions(
        service: Annotated[str | None, Query(max_length=320)] = None,
        limit: Annotated[int, Query(ge=1, le=KEPT)] = 50,
    ) -> Response:
        lines = b",".join(entry_json(entry) for entry in desk.ledger.recent(service, limit))
        return Response(b"[" + lines + b"]", media_type="application/json")

    app.add_exception_handler(404, _not_found)
    return app


async def _not_found(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "no such route; there are /healthz, /readyz, /metrics, /debug/decisions"}, 404)
