"""All routes of one worker, and the one mapping from errors to answers: clients never see FastAPI's own errors."""

from collections.abc import Mapping

from fastapi import FastAPI, Request, Response
from starlette.exceptions import HTTPException
from starlette.routing import Route, WebSocketRoute

from paceline_core import __version__
from paceline_core.errors import Code, RequestError, error_response
from paceline_core.wire import RETIRE_PATH, WorkerState
from paceline_workers.server.evacuation import EvacuateRoute
from paceline_workers.server.handlers.embed import POOLED, pooled
from paceline_workers.server.handlers.generation import generating
from paceline_workers.server.http.exchange import App, Receive, Scope, Send
from paceline_workers.server.http.middleware import CallerMiddleware
from paceline_workers.server.http.websocket import SocketRoute, refuse
from paceline_workers.server.load_report import LoadRoute
from paceline_workers.server.openai.anthropic.job import count_tokens, messages_job
from paceline_workers.server.openai.chat_job import chat_job
from paceline_workers.server.openai.completion_job import completion_job
from paceline_workers.server.openai.jobs import MakeJob
from paceline_workers.server.openai.responses.job import responses_job
from paceline_workers.server.openai.tokenizing import TokenHandler, TokenRoute, detokenize, tokenize
from paceline_workers.server.process import WorkerServer
from paceline_workers.server.request_handler import GenerationRoute
from paceline_workers.server.retirement import RetireRoute

SOCKETS: Mapping[str, MakeJob] = {"/v1/chat/completions": chat_job, "/v1/completions": completion_job}
"""Generating routes that also accept WebSocket connections."""
GENERATING: Mapping[str, MakeJob] = {**SOCKETS, "/v1/responses": responses_job, "/v1/messages": messages_job}
"""All generating routes."""
TOKENS: Mapping[str, TokenHandler] = {
    "/tokenize": tokenize,
    "/detokenize": detokenize,
    "/v1/messages/count_tokens": count_tokens,
}
"""Routes that count or decode tokens."""


def create_app(worker: WorkerServer) -> App:
    """The ASGI application of `worker`. It includes public probes, unless these have a port of their own."""
    app = _bare()
    for path, make_job in GENERATING.items():
        serve = generating(make_job)
        app.routes.append(Route(path, GenerationRoute(worker.parts, serve), methods=["POST"]))
        if path in SOCKETS:
            app.routes.append(WebSocketRoute(path, SocketRoute(worker.parts, serve)))
    for path, make_pooled_job in POOLED.items():
        app.routes.append(Route(path, GenerationRoute(worker.parts, pooled(make_pooled_job)), methods=["POST"]))
    app.routes.append(Route("/internal/load", LoadRoute(worker.board, worker.parts.write_limit_s), methods=["GET"]))
    evacuate = EvacuateRoute(worker.parts.streams, worker.parts.bodies, worker.parts.write_limit_s)
    app.routes.append(Route("/internal/evacuate", evacuate, methods=["POST"]))
    retire = RetireRoute(worker.retirement, worker.parts.bodies, worker.parts.write_limit_s)
    app.routes.append(Route(RETIRE_PATH, retire, methods=["POST", "DELETE"]))
    for path, answer in TOKENS.items():
        app.routes.append(Route(path, TokenRoute(worker.parts, answer), methods=["POST"]))
    _add_models(app, worker)
    if not worker.probes_apart:
        _add_probes(app, worker)
    return CallerMiddleware(app, worker.trust, anonymous=worker.anonymous, probes=not worker.probes_apart)


def create_probes(worker: WorkerServer) -> App:
    """Health, readiness and metrics, for everyone who can reach them."""
    app = _bare()
    _add_probes(app, worker)
    return app


def _bare() -> FastAPI:
    app = FastAPI(
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        redirect_slashes=False,
        exception_handlers={RequestError: _failed, HTTPException: _unrouted, Exception: _failed},
    )
    app.router.default = _nowhere
    return app


def _add_probes(app: FastAPI, worker: WorkerServer) -> None:
    @app.get("/healthz")
    async def healthz() -> Response:
        """Alive: the engine has not been silent beyond the watchdog's limit. A long step does not count as silence."""
        engine = worker.parts.engine
        if engine.alive:
            return Response("ok\n")
        return _reply(RequestError(Code.ENGINE_FAILED, f"The engine is silent for {engine.silence:.0f} s."))

    @app.get("/readyz")
    async def readyz() -> Response:
        """Ready: the model is loaded, the worker does not drain, and clients are allowed to send requests."""
        if not (worker.anonymous or worker.trust.known):
            return _reply(RequestError(Code.NO_CAPACITY, "No public key of a gateway is known yet.", retry_after=1.0))
        report = worker.board.report
        if report.state is WorkerState.READY:
            return Response("ok\n")
        code = Code.DRAINING if report.state is WorkerState.DRAINING else Code.NO_CAPACITY
        state = "retired" if report.retired else report.state
        return _reply(RequestError(code, f"This worker is {state}.", retry_after=1.0))

    @app.get("/version")
    async def version() -> dict[str, str]:
        """The version, in vLLM's form."""
        return {"version": __version__}

    @app.get("/metrics")
    async def metrics() -> Response:
        """Prometheus metrics."""
        waiting, held = worker.checks.waiting, worker.parts.bodies.held
        body, content_type = worker.parts.measures.exposition(worker.parts.engine, waiting, held)
        return Response(body, media_type=content_type)


def _add_models(app: FastAPI, worker: WorkerServer) -> None:
    def model_card(name: str) -> dict[str, object]:
        started = worker.parts.engine.started
        length = started.max_model_len if started else None
        root = worker.parts.model.names[0]
        own = {"id": name, "object": "model", "created": worker.since, "owned_by": "paceline"}
        return own | {"root": root, "parent": None, "max_model_len": length}

    @app.get("/v1/models")
    async def list_models() -> dict[str, object]:
        """All names of the model, and its context length (null until it is loaded)."""
        return {"object": "list", "data": [model_card(name) for name in worker.parts.model.names]}

    @app.get("/v1/models/{name:path}")
    async def get_model(name: str) -> dict[str, object]:
        """One name of the model."""
        worker.parts.model.known(name)
        return model_card(name)


async def _nowhere(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["type"] != "websocket":
        raise HTTPException(404)
    words = f"{scope['path']} takes no WebSocket connections."
    await refuse(RequestError(Code.ROUTE_NOT_FOUND, words), receive, send)


async def _unrouted(request: Request, error: Exception) -> Response:
    wrong_method = isinstance(error, HTTPException) and error.status_code == 405
    code = Code.METHOD_NOT_ALLOWED if wrong_method else Code.ROUTE_NOT_FOUND
    allowed = (error.headers if isinstance(error, HTTPException) else None) or {}
    words = f"{request.method} {request.url.path} is no route of this worker."
    return _reply(RequestError(code, words, headers=allowed), request.url.path)


async def _failed(request: Request, error: Exception) -> Response:
    return _reply(error, request.url.path)


def _reply(error: Exception, path: str = "") -> Response:
    response = error_response(error, path)
    return Response(response.body, response.status, response.headers)
