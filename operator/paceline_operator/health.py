"""Whether the process is healthy and ready: pure checks, and the port that reports them.

Unhealthy: a watch is silent for longer than two of its limits, a key waits while workers are idle, or a part ended that
should not. A refused watch is not silent: a new process would be refused as well, and kubelet's pauses between restarts
would outlast the refusal. Ready: everything was listed once; a standby is ready too.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response

from paceline_core.clock import Clock
from paceline_core.kube.client.watch import WatchLiveness
from paceline_core.telemetry import Metrics
from paceline_operator.config import HealthConfig
from paceline_operator.state.cluster_state import ClusterState
from paceline_operator.state.workqueue import WorkQueue


@dataclass(frozen=True, slots=True)
class HealthInputs:
    """The data for the checks. `ended` names a part that ended, or nothing."""

    state: ClusterState
    queue: WorkQueue
    liveness: Callable[[], Iterable[WatchLiveness]]
    limits: HealthConfig
    metrics: Metrics
    clock: Clock
    ended: Callable[[], str]
    leads: Callable[[], bool]


def liveness_error(inputs: HealthInputs) -> str:
    """Why this process should be restarted, or nothing."""
    now, limits = inputs.clock.monotonic(), inputs.limits
    if ended := inputs.ended():
        return ended
    for watch in inputs.liveness():
        if (silence := watch.silence(now)) > limits.watch_silence_s:
            return f"the watch on {watch.name} is silent for {silence:.0f} s"
    waited = inputs.queue.backlog.oldest_s(now)
    if inputs.queue.idle and waited > limits.queue_wait_s:
        return f"a key waits for {waited:.0f} s while workers idle"
    return ""


def readiness_error(inputs: HealthInputs) -> str:
    """What is not listed yet, with the right that it lacks, or nothing."""
    state = inputs.state
    kinds = [f"{kind} ({state.forbidden[kind]})" if kind in state.forbidden else kind for kind in state.missing]
    return f"not listed yet: {', '.join(kinds)}" if kinds else ""


def make_app(inputs: HealthInputs) -> FastAPI:
    app = FastAPI(openapi_url=None)

    @app.get("/healthz")
    async def healthz() -> Response:
        return _answer(liveness_error(inputs))

    @app.get("/readyz")
    async def readyz() -> Response:
        return _answer(readiness_error(inputs))

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        now, backlog, gauge = inputs.clock.monotonic(), inputs.queue.backlog, inputs.metrics.gauge
        gauge("paceline_operator_leader").set(inputs.leads())
        gauge("paceline_operator_queue_depth").set(backlog.depth)
        gauge("paceline_operator_queue_oldest_seconds").set(backlog.oldest_s(now))
        for watch in inputs.liveness():
            gauge("paceline_operator_watch_age_seconds", watch.name).set(watch.age(now))
        body, content_type = inputs.metrics.exposition(request.headers.get("accept", ""))
        return Response(body, headers={"content-type": content_type})

    app.add_exception_handler(404, _not_found)
    return app


def _answer(error: str) -> Response:
    return PlainTextResponse(error or "ok", 503 if error else 200)


async def _not_found(_: Request, __: Exception) -> Response:
    return JSONResponse({"error": "no such route; there are /healthz, /readyz, /metrics"}, 404)
