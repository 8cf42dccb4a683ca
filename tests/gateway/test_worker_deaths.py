"""Deaths told from broken connections, and what gateway and worker say to each other of suspects; without sockets."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from tests.every import cases
from tests.gateway import manifests
from tests.gateway.pieces import endpoint, report

from paceline_core.objects import resolve
from paceline_core.objects.service import InferenceService
from paceline_core.objects.validate import read
from paceline_core.registry.enums import RequestClass
from paceline_core.telemetry import Metrics
from paceline_core.wire import SUSPECT
from paceline_gateway.config import HttpLimits
from paceline_gateway.http.connection_pool import DisconnectReason
from paceline_gateway.queueing.queued_request import QueuedRequest
from paceline_gateway.request.group_testing import PROOF, SuspectGroup
from paceline_gateway.routing.policies import ShortestTTFT
from paceline_gateway.routing.worker import Worker
from paceline_gateway.services.service_state import ServiceState
from paceline_gateway.services.worker_deaths import MAX_PROOF, WorkerDeaths
from paceline_gateway.telemetry.service_metrics import ServiceMetrics

Later = list[Callable[[], None]]


def service_state() -> ServiceState:
    service = resolve(read(InferenceService, manifests.service()))
    return ServiceState(service, ServiceMetrics(Metrics("gateway"), service), HttpLimits(), ShortestTTFT(0.5))


DESK = service_state()


@dataclass(eq=False)
class Caller:
    """A call that has lost its worker."""

    queued: QueuedRequest | None
    told: list[tuple[DisconnectReason, SuspectGroup | None]] = field(default_factory=list)

    def resolve_loss(self, _: Worker, loss: DisconnectReason, part: SuspectGroup | None) -> None:
        self.told.append((loss, part))


def suspect(number: int, accused: int = 1) -> QueuedRequest:
    queued = QueuedRequest(number, RequestClass.INTERACTIVE, 10, 40, deadline=1e9)
    queued.suspect, queued.accused, queued.sure_until = True, accused, 101.0
    return queued


def test_a_worker_hears_of_a_suspect_while_certainty_comes_first() -> None:
    deaths, queued = WorkerDeaths("one"), suspect(7)
    assert deaths.introduction(queued, 100.0) == f"{SUSPECT}: one/7.1;{PROOF}\r\n".encode()
    queued.past = 20
    assert deaths.introduction(queued, 100.0).endswith(f";{20 + PROOF}\r\n".encode())
    queued.past = 10 * MAX_PROOF
    assert deaths.introduction(queued, 100.0).endswith(f";{MAX_PROOF}\r\n".encode())
    assert deaths.introduction(queued, 101.0) == b""
    queued.suspect = False
    assert deaths.introduction(queued, 100.0) == b""


@cases(
    ("name", "heard"),
    [
        ("one/7.2", True),
        ("one/7.1", False),
        ("other/7.2", False),
        ("one/8.2", False),
        ("one/x.2", False),
        ("one/\u00b2.2", False),
        (f"one/{'9' * 5000}.2", False),
        ("", False),
    ],
)
def test_a_gateway_hears_of_its_own_suspects_and_of_their_last_accusation(name: str, heard: bool) -> None:
    call = Caller(suspect(7, accused=2))
    assert list(WorkerDeaths("one").cleared([name], {7: call})) == ([call] if heard else [])


@pytest.mark.parametrize("loss", [DisconnectReason.REFUSED, DisconnectReason.INVALID])
def test_a_loss_that_a_live_worker_can_cause_is_resolved_at_once(loss: DisconnectReason) -> None:
    deaths, call, worker = WorkerDeaths(), Caller(suspect(1)), Worker(endpoint())
    worker.on_report(report(), 100.0)
    deaths.lost(DESK, worker, call, loss, None)
    assert call.told == [(loss, None)]


@pytest.mark.parametrize("loss", [DisconnectReason.CLOSED, DisconnectReason.STALE])
def test_a_broken_answer_waits_until_its_workers_state_is_known(loss: DisconnectReason) -> None:
    later: Later = []
    deaths, call, worker = (
        WorkerDeaths("one", lambda _, then: later.append(then)),
        Caller(suspect(1)),
        Worker(endpoint()),
    )
    worker.on_report(report(), 100.0)
    deaths.lost(DESK, worker, call, loss, None)
    assert call.told == []
    later.pop()()
    assert call.told == [(loss, None)]


def test_while_its_load_stream_is_cut_it_waits_longer_and_a_new_one_says_that_it_lives() -> None:
    later: Later = []
    deaths, call, worker = (
        WorkerDeaths("one", lambda _, then: later.append(then)),
        Caller(suspect(1)),
        Worker(endpoint()),
    )
    worker.on_report(report(), 100.0)
    deaths.lost(DESK, worker, call, DisconnectReason.CLOSED, None)
    worker.connected = False
    later.pop()()
    assert call.told == []
    deaths.heard(worker)
    assert call.told == [(DisconnectReason.CLOSED, None)]
    later.pop()()
    assert len(call.told) == 1
