"""Workers from EndpointSlices and from Pods."""

from typing import Any

import pytest

from paceline_core.kube import (
    Deleted,
    Endpoint,
    Listed,
    ObjectKey,
    ServiceEndpoints,
    StartStage,
    Upserted,
    WatchLost,
)
from paceline_core.kube.cluster import Manifest, WatchEvent
from paceline_core.kube.endpoints import EndpointTracker, read_pod, read_slice

CHAT = ObjectKey("team", "chat")
POD = "chat-main-7d4f8-abcde"


def member(pod: str = POD, host: str = "10.0.0.1", **conditions: Any) -> dict[str, Any]:
    return {"addresses": [host], "conditions": conditions, "targetRef": {"kind": "Pod", "name": pod}}


def slice_(name: str, *members: Any, service: str = "chat", **more: Any) -> Manifest:
    metadata = {"name": name, "namespace": "team", "labels": {"paceline.dev/service": service}}
    ports = [{"name": "metrics", "port": 9000}, {"name": "http", "port": 8000}]
    return {"metadata": metadata, "addressType": "IPv4", "ports": ports, "endpoints": list(members), **more}


def pod(name: str = POD, *, labels: dict[str, str] | None = None, **status: Any) -> Manifest:
    found = {"paceline.dev/service": "chat", "paceline.dev/pool": "main", "paceline.dev/track": "canary"}
    metadata = {
        "name": name,
        "namespace": "team",
        "labels": {**found, "paceline.dev/revision": "abc", **(labels or {})},
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    ports = [{"name": "http", "containerPort": 8001}]
    return {"metadata": metadata, "spec": {"containers": [{"ports": ports}]}, "status": status}


def slices(*items: Manifest) -> tuple[EndpointTracker, list[WatchEvent[ServiceEndpoints]]]:
    roster = EndpointTracker(read_slice)
    return roster, list(roster.take(Listed(items)))


def only(events: list[WatchEvent[ServiceEndpoints]]) -> tuple[Endpoint, ...]:
    (event,) = events
    assert isinstance(event, Upserted | Deleted)
    assert event.item.service == CHAT
    return event.item.endpoints


READY = Endpoint(POD, "main", "stable", "", "10.0.0.1", 8000, ready=True)


def test_a_slice_tells_name_pool_address_and_port() -> None:
    _, told = slices(slice_("s1", member(ready=True)))
    assert told == [Listed((ServiceEndpoints(CHAT, (READY,)),))]


def test_a_pod_that_still_serves_while_it_ends_takes_no_new_work() -> None:
    for ready in (False, True):
        roster, _ = slices()
        ending = slice_("s1", member(ready=ready, serving=True, terminating=True))
        (found,) = only(list(roster.take(Upserted(ending))))
        assert (found.ready, found.terminating) == (False, True)


def test_unknown_readiness_means_ready_as_the_api_says() -> None:
    _, told = slices(slice_("s1", member()))
    assert told == [Listed((ServiceEndpoints(CHAT, (READY,)),))]


def test_a_service_is_the_sum_of_its_slices_and_a_worker_stands_once() -> None:
    other = member("chat-main-7d4f8-bbbbb", "10.0.0.2", ready=True)
    twice = [slice_("s1", member(ready=False), other), slice_("s2", member(ready=True))]
    _, told = slices(*twice)
    (found,) = told[0].items if isinstance(told[0], Listed) else ()
    assert [(worker.name, worker.ready) for worker in found.endpoints] == [
        (POD, True),
        ("chat-main-7d4f8-bbbbb", True),
    ]


def test_both_address_families_are_one_worker() -> None:
    _, told = slices(
        slice_("s1", member(ready=True)), slice_("s2", member(host="fd00::1", ready=True), addressType="IPv6")
    )
    assert told == [Listed((ServiceEndpoints(CHAT, (READY,)),))]


def test_only_a_difference_is_told() -> None:
    roster, _ = slices(slice_("s1", member(ready=True)))
    assert list(roster.take(Upserted(slice_("s1", member(ready=True))))) == []
    assert only(list(roster.take(Upserted(slice_("s1"))))) == ()


def test_the_last_slice_takes_the_service_with_it() -> None:
    roster, _ = slices(slice_("s1", member(ready=True)), slice_("s2"))
    assert list(roster.take(Deleted(slice_("s2")))) == []
    assert only(list(roster.take(Deleted(slice_("s1"))))) == (READY,)
    assert list(roster.take(Deleted(slice_("s1")))) == []


def test_what_was_known_before_a_list_is_forgotten() -> None:
    roster, _ = slices(slice_("s1", member(ready=True)))
    assert list(roster.take(Listed(()))) == [Listed(())]
    assert only(list(roster.take(Upserted(slice_("s2", member(ready=True)))))) == (READY,)


def test_a_lost_watch_is_passed_on() -> None:
    roster, _ = slices()
    assert list(roster.take(WatchLost("why"))) == [WatchLost("why")]


def test_slices_without_endpoints_ports_or_pods_are_no_workers() -> None:
    empty: list[Any] = [
        slice_("s1", endpoints=None),
        slice_("s2", member(ready=True), ports=None),
        slice_("s3", {"addresses": ["10.0.0.9"], "conditions": {"ready": True}}),
        slice_("s4", {**member(ready=True), "addresses": []}),
        slice_("s5", member(ready=True), addressType="FQDN"),
    ]
    assert slices(*empty)[1] == [Listed((ServiceEndpoints(CHAT, ()),))]


def test_a_slice_of_somebody_else_is_none_of_ours() -> None:
    assert slices(slice_("s1", member(), service=""))[1] == [Listed(())]


def test_a_pod_tells_pool_track_and_revision_by_its_labels() -> None:
    entry = read_pod(pod(podIP="10.0.0.1", phase="Running", conditions=[{"type": "Ready", "status": "True"}]))
    assert entry is not None
    worker = Endpoint(POD, "main", "canary", "abc", "10.0.0.1", 8001, ready=True, created="2026-01-01T00:00:00Z")
    assert (entry.service, entry.workers) == (CHAT, (worker,))


def test_a_pending_pod_is_there_without_an_address() -> None:
    entry = read_pod(pod(phase="Pending"))
    assert entry is not None
    assert [(worker.host, worker.ready) for worker in entry.workers] == [("", False)]


def test_a_pod_that_is_being_deleted_is_not_ready() -> None:
    manifest = pod(podIP="10.0.0.1", phase="Running", conditions=[{"type": "Ready", "status": "True"}])
    manifest["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    entry = read_pod(manifest)
    assert entry is not None
    assert [(worker.ready, worker.terminating) for worker in entry.workers] == [(False, True)]


WAITING: Manifest = {"state": {"waiting": {}}}
RUNNING: Manifest = {"state": {"running": {}}}
CRASHED: Manifest = {"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {}}}


@pytest.mark.parametrize(
    ("node", "containers", "stage"),
    [
        ("", (), StartStage.SCHEDULE),
        ("n1", (), StartStage.PULL),
        ("n1", (RUNNING, WAITING), StartStage.PULL),
        ("n1", (RUNNING,), StartStage.LOAD),
        ("n1", (CRASHED,), StartStage.LOAD),
    ],
)
def test_a_pod_shows_the_stage_of_its_start(node: str, containers: tuple[Any, ...], stage: StartStage) -> None:
    manifest = pod(containerStatuses=containers)
    manifest["spec"]["nodeName"] = node
    entry = read_pod(manifest)
    assert entry is not None
    assert [worker.stage for worker in entry.workers] == [stage]


def test_a_pod_that_is_ready_or_ends_is_in_no_stage_of_its_start() -> None:
    ready, ending = pod(conditions=[{"type": "Ready", "status": "True"}]), pod(phase="Running")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:01:00Z"
    assert [worker.stage for entry in map(read_pod, (ready, ending)) if entry for worker in entry.workers] == [None] * 2


def test_pods_that_have_ended_are_no_workers() -> None:
    entries = [read_pod(pod(phase=phase)) for phase in ("Failed", "Succeeded")]
    assert [entry.workers for entry in entries if entry] == [(), ()]


def test_pods_come_and_go() -> None:
    roster = EndpointTracker(read_pod)
    list(roster.take(Listed(())))
    assert [worker.name for worker in only(list(roster.take(Upserted(pod("b")))))] == ["b"]
    assert [worker.name for worker in only(list(roster.take(Upserted(pod("a")))))] == ["a", "b"]
    assert [worker.name for worker in only(list(roster.take(Deleted(pod("b")))))] == ["a"]
    assert isinstance(next(iter(roster.take(Deleted(pod("a"))))), Deleted)
