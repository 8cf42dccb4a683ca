"""Run one worker as a process: bind, serve, supervise the engine, drain on a signal.

It binds the port first, so that a port in use gives one clear line and no half-started worker. The first SIGTERM or
SIGINT drains, the second ends at once; either way every open request gets an answer and the exit status is 0.
"""

import asyncio
import contextlib
import gc
import os
import socket
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import uvicorn

from paceline_core.admin.http_protocol import BoundedHttpProtocol
from paceline_core.clock import SystemClock
from paceline_core.config import collector_configured, tracing_enabled
from paceline_core.process import BACKLOG, QuietServer, admin_server, bind, cancel, on_signals, remove_signals
from paceline_core.telemetry import get_logger
from paceline_workers.config import WorkerConfig
from paceline_workers.messages import Heartbeat, Started
from paceline_workers.server.app import create_app, create_probes
from paceline_workers.server.engine.client import EngineState
from paceline_workers.server.engine.link import EngineProcess
from paceline_workers.server.http.exchange import WRITE_LIMIT_S
from paceline_workers.server.http.websocket_protocol import socket_protocol
from paceline_workers.server.process import WorkerServer, create_worker
from paceline_workers.server.telemetry.request_metrics import GenerationTracing

_log = get_logger(__name__)
KEEP_ALIVE_S = 75
CLOSE_S = 3


@dataclass(frozen=True, slots=True)
class Sockets:
    """The worker's listening sockets: its API, and the port of probes and metrics if that is separate."""

    api: socket.socket
    metrics: socket.socket | None = None


@contextlib.contextmanager
def take_ports(config: WorkerConfig) -> Iterator[Sockets]:
    """Listening sockets. Raises InvalidInput as `bind` does.

    The kernel drops an accepted API connection if its peer takes no data for the write limit, because ASGI cannot close
    it.
    """
    with contextlib.ExitStack() as taken:
        api = taken.enter_context(bind(config.listen))
        with contextlib.suppress(AttributeError, OSError):  # Linux has it; elsewhere the request still ends in time
            api.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(WRITE_LIMIT_S * 1000))
        metrics = taken.enter_context(bind(config.metrics, "metrics")) if config.metrics else None
        yield Sockets(api, metrics)


def tracing(config: WorkerConfig, environ: Mapping[str, str]) -> GenerationTracing | None:
    """The tracing that the environment configures; None if it is off."""
    if not tracing_enabled(environ):
        return None
    if not collector_configured(environ):
        if config.trace_ratio:
            _log.warning("no request is traced: set OTEL_EXPORTER_OTLP_ENDPOINT to the address of a collector")
        return None
    try:
        from paceline_workers.server.telemetry.spans import GenerationSpanWriter  # noqa: PLC0415 - none of it where tracing is off
    except ImportError as error:
        _log.warning("no request is traced: install paceline[tracing]", extra={"reason": str(error)})
        return None
    return GenerationSpanWriter.create(config)


async def serve(config: WorkerConfig, sockets: Sockets, engine_argv: Sequence[str]) -> None:
    """Serve until drained. Raises PacelineError if the model or the engine cannot start."""
    launch = partial(EngineProcess.spawn, engine_argv)
    worker = create_worker(config, launch, SystemClock(), tracing=tracing(config, os.environ))
    gc.freeze()  # a full collection would otherwise scan all of these long-lived objects, between two tokens
    http = http_server(worker)
    starts = _checks_with_engine(worker)
    engine = asyncio.create_task(worker.parts.engine.run())
    server = asyncio.create_task(http.serve([sockets.api]))
    probes = admin_server(create_probes(worker))
    probing = asyncio.create_task(probes.serve([sockets.metrics])) if sockets.metrics else None
    _log.info("listening", extra={**_ports(sockets), "service": config.service})
    with _drain_on_signal(worker, http):
        await asyncio.wait({engine, server}, return_when=asyncio.FIRST_COMPLETED)
    http.should_exit = probes.should_exit = True
    worker.board.close()
    engine.cancel()
    ends = await asyncio.gather(engine, server, *([probing] if probing else []), return_exceptions=True)
    await cancel(*starts)
    await worker.close()
    await asyncio.to_thread(worker.parts.measures.requests.close)
    for end in ends:
        if isinstance(end, Exception):
            raise end


def _checks_with_engine(worker: WorkerServer) -> list[asyncio.Task[None]]:
    """Start the grammar checks once an engine that supports grammars is up; returns the tasks that do so."""
    tasks: list[asyncio.Task[None]] = []

    def on_engine(event: EngineState | Started | Heartbeat) -> None:
        if isinstance(event, Started) and event.grammars and not tasks:
            tasks.append(asyncio.get_running_loop().create_task(worker.warm_checks()))

    worker.parts.engine.listen(on_engine)
    return tasks


def _ports(sockets: Sockets) -> dict[str, object]:
    host, port = sockets.api.getsockname()[:2]
    apart = {"metrics": sockets.metrics.getsockname()[1]} if sockets.metrics else {}
    return {"host": host, "port": port, **apart}


def http_server(worker: WorkerServer) -> QuietServer:
    """uvicorn over `worker`'s routes."""
    settings = uvicorn.Config(
        create_app(worker),
        http=BoundedHttpProtocol,
        ws=socket_protocol(worker.parts.bodies),
        ws_max_size=worker.parts.body_limit,
        ws_per_message_deflate=False,  # costs more than it saves on short messages
        lifespan="off",
        log_config=None,
        log_level="error",  # below that it logs every malformed request, so strangers could fill the log
        access_log=False,
        server_header=False,
        date_header=False,
        backlog=BACKLOG,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=CLOSE_S,
    )
    return QuietServer(settings)


@contextlib.contextmanager
def _drain_on_signal(worker: WorkerServer, http: QuietServer) -> Iterator[None]:
    """The first signal drains and then closes; the second cuts what is still open."""
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []

    async def end(how: Awaitable[None]) -> None:
        await how
        http.should_exit = True

    def on_signal() -> None:
        if len(tasks) < 2:
            _log.info("ending now" if tasks else "draining", extra={"open": worker.gate.open})
            tasks.append(loop.create_task(end(worker.abort() if tasks else worker.drain())))

    on_signals(on_signal)
    try:
        yield
    finally:
        remove_signals()
        for task in tasks:
            task.cancel()
