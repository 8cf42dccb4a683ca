"""Requests that gateways isolated, told as Events by whoever leads: each once."""

from datetime import UTC, datetime, timedelta

from tests.autoscaler.talkers import demand_report, eventually
from tests.autoscaler.test_controller import Rig

from paceline_autoscaler.output.worker_events import FRESH_S, GATEWAYS, WAITING, IsolationEvents, isolation_event
from paceline_core.clock import rfc3339
from paceline_core.wire import DemandReport, Isolated, ServiceDemand

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def told(request: str, age_s: float = 1.0, at: str = "") -> Isolated:
    moment = rfc3339(NOW - timedelta(seconds=age_s))
    return Isolated(tenant="team", request=request, worker="chat-main-1", at=at or moment)


def line(*requests: Isolated, gateway: str = "g1") -> DemandReport:
    return DemandReport(
        gateway=gateway, started="a", services=(ServiceDemand(service="default/chat", isolated=requests),)
    )


def names(book: IsolationEvents) -> list[str]:
    return [each.request for _, each in book.take()]


def test_each_is_reported_once_however_often_its_gateway_repeats_it() -> None:
    book = IsolationEvents()
    assert not book.on(line(), NOW)
    assert book.on(line(told("a")), NOW)
    assert not book.on(line(told("a")), NOW)
    assert book.on(line(told("a"), told("b")), NOW)
    assert names(book) == ["a", "b"]
    assert names(book) == []


def test_of_a_gateway_heard_for_the_first_time_only_what_is_fresh_is_news() -> None:
    book = IsolationEvents()
    old, odd = told("old", FRESH_S + 1), (told("odd", at="yesterday"), told("naive", at="2026-01-31T12:00:00"))
    assert book.on(line(old, told("fresh"), *odd), NOW)
    assert names(book) == ["fresh"]


def test_what_nobody_may_report_is_bounded() -> None:
    book = IsolationEvents()
    book.on(line(), NOW)
    book.on(line(*(told(f"r{number}") for number in range(2 * WAITING))), NOW)
    assert len(names(book)) == WAITING


def test_gateways_that_come_and_go_are_not_remembered_for_ever() -> None:
    book = IsolationEvents()
    for number in range(2 * GATEWAYS):
        book.on(line(gateway=f"g{number}"), NOW)
        book.on(line(gateway="first"), NOW)
    assert len(book._reported) == GATEWAYS
    assert book.on(line(told("old", FRESH_S + 1), gateway="first"), NOW)
    assert not book.on(line(told("old", FRESH_S + 1), gateway="g0"), NOW)


def test_the_event_names_tenant_request_and_worker() -> None:
    said = isolation_event("default/chat", told("r1"))
    assert (said.kind, str(said.key), said.type, said.reason) == (
        "InferenceService", "default/chat", "Warning", "RequestIsolated",
    )  # fmt: skip
    assert all(word in said.message for word in ("r1", "team", "chat-main-1"))
    assert said.extra == {"tenant": "team", "request-id": "r1"}


async def test_the_leader_reports_the_cluster_in_its_next_pass() -> None:
    rig = Rig()
    try:
        await rig.start()
        await rig.autoscaler.step()
        report = demand_report()
        (service,) = report.services
        mine = Isolated(tenant="team", request="r1", worker="main-0", at=rfc3339(rig.clock.utc()))
        rig.talkers["10.0.0.1:81"].say(
            report.model_copy(update={"services": (service.model_copy(update={"isolated": (mine,)}),)})
        )
        await eventually(rig.bell.is_set)
        await rig.autoscaler.step()
        await rig.autoscaler.step()
        assert [each.reason for each in rig.cluster.events].count("RequestIsolated") == 1
    finally:
        await rig.autoscaler.close()
