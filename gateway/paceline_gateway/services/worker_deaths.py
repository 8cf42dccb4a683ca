"""Worker deaths: after an answer broke off, did the worker die, or only the connection?

A process that ends closes all its connections at once, its load stream too, and refuses new ones; a process that lives
keeps its load stream. So a request whose answer broke off waits for a sign of its worker before it continues: at most
STANDS_S while the load stream is open, UNKNOWN_S while it is not. What is unknown by then counts as no death. A worker
that drains is never suspected, and a host that vanishes refuses no connections.

Known holes: a process that its node killed for lack of memory looks like one that a request has killed, so a first
death isolates no request; a worker is not missed if another process listens in its place within 50 ms.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple, Protocol, TypeVar

from paceline_core.registry.enums import ResumeReason
from paceline_core.telemetry import get_logger
from paceline_core.wire import MOVED_HEADER, SUSPECT, MoveReason
from paceline_gateway.http.connection_pool import DisconnectReason
from paceline_gateway.http.message import Headers
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request.group_testing import SuspectGroup, proof
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.service_state import ServiceState

_log = get_logger(__name__)
STANDS_S = 0.1
UNKNOWN_S = 2.5
"""Longer than the wait of `keep_reading` between two attempts."""
BUSY_S = 0.1
"""How long a worker is assumed to have another gateway's suspect after it has reported one."""
MAX_PROOF = 9999
"""The most tokens of a trial that a worker can be sent."""
_SUSPECT, _MOVED, _ENGINE = SUSPECT.encode(), MOVED_HEADER.encode(), MoveReason.ENGINE.encode()
DEATH_HEADERS = frozenset({_SUSPECT, _MOVED})
"""Names of the response headers that `WorkerDeaths.head` reads."""
_NUMBER = re.compile(r"[0-9]{1,18}")
_DOUBTFUL = frozenset({DisconnectReason.CLOSED, DisconnectReason.STALE})


class LostRequest(Protocol):
    """A request that lost its worker."""

    queued: QueuedRequest | None

    def resolve_loss(self, worker: Worker, loss: DisconnectReason, part: SuspectGroup | None) -> None:
        """Continue: the worker's fate is known. `part`: the request's part in its death, None if it lives."""
        ...


C = TypeVar("C", bound=LostRequest)


class DeathVerdict(NamedTuple):
    """The request's part in the death of the worker's engine; `busy`: the worker has a suspect and takes no second."""

    part: SuspectGroup | None = None
    busy: bool = False


class WorkerDeaths:
    """Lost answers of one gateway. `later` calls a function after a number of seconds."""

    def __init__(self, gateway: str = "", later: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        self._gateway = gateway
        self._later = later or (lambda seconds, then: asyncio.get_running_loop().call_later(seconds, then))
        self._open: dict[Worker, dict[LostRequest, DisconnectReason]] = {}

    def lost(
        self,
        service: ServiceState,
        worker: Worker,
        request: LostRequest,
        loss: DisconnectReason,
        moved: ResumeReason | None,
    ) -> None:
        """A request's answer broke off, or the worker released it; `resolve_loss` is called once the cause is known."""
        if moved is ResumeReason.ENGINE:
            request.resolve_loss(worker, loss, self.engine(service, worker, request))
        elif moved is not None or worker.draining or loss not in _DOUBTFUL:
            request.resolve_loss(worker, loss, None)
        elif worker.dead:
            request.resolve_loss(worker, loss, _part(service, request))
        else:
            self._open.setdefault(worker, {})[request] = loss
            self._later(STANDS_S, lambda: self._stands(worker, request))

    def refused(self, service: ServiceState, worker: Worker) -> None:
        if worker.draining or worker.dead or worker.report is None:
            return
        worker.dead = True
        _count(service, worker)
        for request, loss in self._open.pop(worker, {}).items():
            request.resolve_loss(worker, loss, _part(service, request))

    def heard(self, worker: Worker) -> None:
        """The worker lives: its load stream is open again."""
        for request, loss in self._open.pop(worker, {}).items():
            request.resolve_loss(worker, loss, None)

    def engine(self, service: ServiceState, worker: Worker, request: LostRequest) -> SuspectGroup | None:
        """The worker reports that its engine died during this request; returns the request's part in it."""
        if worker.draining:
            return None
        if _part(service, request) is None:
            _count(service, worker)
        return _part(service, request)

    def head(
        self, service: ServiceState, worker: Worker, request: LostRequest, headers: Headers, now: float
    ) -> DeathVerdict:
        busy = _SUSPECT in headers
        if busy:
            worker.tries_until = now + BUSY_S
        return DeathVerdict(self.engine(service, worker, request) if headers.get(_MOVED) == _ENGINE else None, busy)

    def introduction(self, queued: QueuedRequest | None, now: float) -> bytes:
        """A header line for a suspect's worker, while certainty comes first."""
        if queued is None or not queued.suspect or now >= queued.sure_until:
            return b""
        tokens = min(proof(sure=True, past=queued.past), MAX_PROOF)
        return f"{SUSPECT}: {self._gateway}/{queued.id}.{queued.accused};{tokens}\r\n".encode()

    def cleared(self, names: Iterable[str], requests: Mapping[int, C]) -> Iterator[C]:
        """The suspects that a worker reports as cleared: those of this gateway, without a later accusation."""
        for gateway, _, name in (name.rpartition("/") for name in names):
            number, _, accused = name.partition(".")
            request = requests.get(int(number)) if gateway == self._gateway and _NUMBER.fullmatch(number) else None
            if request is not None and request.queued is not None and str(request.queued.accused) == accused:
                yield request

    def _stands(self, worker: Worker, request: LostRequest) -> None:
        if worker.connected:
            self._settle(worker, request)
        else:
            self._later(UNKNOWN_S, lambda: self._settle(worker, request))

    def _settle(self, worker: Worker, request: LostRequest) -> None:
        requests = self._open.get(worker, {})
        loss = requests.pop(request, None)
        if not requests:
            self._open.pop(worker, None)
        if loss is not None:
            request.resolve_loss(worker, loss, None)


def _count(service: ServiceState, worker: Worker) -> None:
    if service.dispatcher.died(worker):
        service.series.deaths.inc()


def _part(service: ServiceState, request: LostRequest) -> SuspectGroup | None:
    return None if request.queued is None else service.dispatcher.part(request.queued)
