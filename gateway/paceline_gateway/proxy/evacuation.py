"""Evacuation: finds the streams to move off draining workers, asks the workers to release them, and never waits.

A released stream ends with `: moved`, or with 503 `draining` if nothing has begun, and then continues at another worker
as after any loss. The answer to the request itself only acknowledges it; if none comes, the request is sent again.
"""

from collections.abc import Callable, Iterable

from paceline_core.telemetry import get_logger
from paceline_core.wire import Evacuate, encode
from paceline_gateway.http.connection_pool import ConnectionPool, DisconnectReason, UpstreamExchange
from paceline_gateway.http.message import Headers
from paceline_gateway.proxy.active_request import ActiveRequest
from paceline_gateway.request.types import AT_WORKER
from paceline_gateway.routing.evacuation_plan import AGAIN_S, EvacuationPlanner, MovableStream
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.service_state import ServiceState

_log = get_logger(__name__)


class EvacuationRequest:
    """A request to a worker to release streams. Receives its answer."""

    def __init__(self, worker: str, streams: int, since: float) -> None:
        self._log_fields = {"worker": worker, "streams": streams}
        self.since = since
        self.over = False

    def head(self, status: int, _: Headers) -> None:
        if status == 200:
            _log.info("streams of a draining worker go on elsewhere", extra=self._log_fields)
        else:
            _log.warning("a draining worker keeps its streams", extra=self._log_fields | {"status": status})

    def data(self, data: bytes, last: bool) -> None:
        """Ignore the number of released streams: the streams themselves show it."""

    def end(self) -> None:
        self.over = True

    def lost(self, _: DisconnectReason) -> None:
        """Allow another request; if the worker is gone, so are its streams."""
        self.over = True


class Evacuator:
    """`internal_token` makes a token for a service's workers."""

    def __init__(self, pool: ConnectionPool, internal_token: Callable[[str], str], lookahead_s: float) -> None:
        self._pool = pool
        self._internal_token = internal_token
        self._lookahead_s = lookahead_s
        self._moves: dict[str, EvacuationPlanner] = {}
        self._asked: list[tuple[EvacuationRequest, UpstreamExchange]] = []

    def sweep(self, services: Iterable[ServiceState], requests: Iterable[ActiveRequest], now: float) -> None:
        """Send the requests that are due; call this a few times a second."""
        for asked, exchange in self._asked:
            if not asked.over and now >= asked.since + AGAIN_S:
                exchange.abort()
                asked.over = True
        self._asked = [entry for entry in self._asked if not entry[0].over]
        for service in services:
            moves = self._moves.setdefault(service.key, EvacuationPlanner(self._lookahead_s))
            if leaving := moves.leaving(service.pool, now):
                self._move(service, moves, leaving, requests, now)

    def closed(self, service: str) -> None:
        self._moves.pop(service, None)

    def _move(
        self,
        service: ServiceState,
        moves: EvacuationPlanner,
        leaving: Iterable[Worker],
        requests: Iterable[ActiveRequest],
        now: float,
    ) -> None:
        workers = {worker.name: worker for worker in leaving}
        streams: dict[Worker, dict[MovableStream, ActiveRequest]] = {worker: {} for worker in workers.values()}
        for request in requests:
            if (
                request.service is service
                and request.machine.worker in workers
                and (stream := _stream(request)) is not None
            ):
                streams[workers[request.machine.worker]][stream] = request
        waiting = {name: len(line) for name, line in service.dispatcher.queues.items()}
        due = moves.due(service.pool, {worker: list(own) for worker, own in streams.items()}, waiting, now)
        for worker, numbers in due.items():
            chosen = [request for stream, request in streams[worker].items() if stream.number in numbers]
            # check what was kept of a stream before asking for its release
            movable = [r for r in chosen if not r.machine.begun or r.resume.abort_reason() is None]
            self._ask(service, worker, movable, now)

    def _ask(self, service: ServiceState, worker: Worker, requests: Iterable[ActiveRequest], now: float) -> None:
        names = [request.request_id.decode("latin-1") for request in requests]
        if not names:
            return
        body, (host, port) = encode(Evacuate(requests=names)), worker.address
        head = (
            f"POST /internal/evacuate HTTP/1.1\r\nhost: {host}:{port}\r\ncontent-length: {len(body)}\r\n"
            f"content-type: application/json\r\nx-paceline-internal-token: {self._internal_token(service.key)}\r\n\r\n"
        )
        asked = EvacuationRequest(worker.name, len(names), now)
        self._asked.append((asked, self._pool.send(worker.address, [head.encode(), body], asked)))


def _stream(request: ActiveRequest) -> MovableStream | None:
    """The stream as a candidate to move; None if no other worker could continue it."""
    journal, queued = request.resume.journal, request.queued
    if queued is None or journal is None or journal.abort_reason is not None or request.machine.state not in AT_WORKER:
        return None
    tokens = request.resume.prompt_tokens + request.machine.meter.output  # another worker would have to compute these
    return MovableStream(queued.id, queued.request_class, tokens)
