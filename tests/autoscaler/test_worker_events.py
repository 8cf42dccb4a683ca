"""Workers, engines and pods that ended become Events, each once, and what ends as it should does not."""

from dataclasses import replace
from typing import Any

from tests.autoscaler.talkers import load_report

from paceline_autoscaler.output.worker_events import WAITING, EndedWorkers
from paceline_core.kube import Deleted, Endpoint, Listed, ObjectKey, ServiceEndpoints, Upserted, WatchLost
from paceline_core.kube.endpoints import EndpointTracker, read_pod

KEY = ObjectKey("default", "chat")
WORKER = Endpoint("chat-main-1", "main", "stable", "r1", "10.1.0.1", 8000, ready=True)


def told(*steps: tuple[Endpoint, ...], failed: tuple[Endpoint, ...] = ()) -> list[tuple[str, str, str]]:
    """The Events of a watch that shows these workers one after another."""
    ended = EndedWorkers()
    known: dict[ObjectKey, ServiceEndpoints] = {}
    for index, workers in enumerate(steps):
        last = failed if index == len(steps) - 1 else ()
        now = ServiceEndpoints(KEY, workers, last)
        ended.on_workers(Upserted(now) if workers or last else Deleted(now), known)
        known = {KEY: now}
    return [(event.type, event.reason, event.message) for event in ended.take()]


def test_a_worker_that_ended_and_is_started_again_is_reported_with_the_cause() -> None:
    again = replace(WORKER, restarts=1, ended="out of memory", ready=False)
    said = "Worker chat-main-1 of pool main ended (out of memory) and is started again; restart 1."
    assert told((WORKER,), (again,), (replace(again, ready=True),)) == [("Warning", "WorkerEnded", said)]


def test_a_worker_that_drains_and_goes_is_no_event() -> None:
    assert told((WORKER,), (replace(WORKER, terminating=True, ready=False),), ()) == []


def test_a_pod_that_vanishes_without_being_asked_to_end_is_lost_unless_it_never_ran() -> None:
    said = "Worker chat-main-1 of pool main is lost (its pod was removed without an order to end)."
    assert told((WORKER,), ()) == [("Warning", "WorkerLost", said)]
    assert told((replace(WORKER, host=""),), ()) == []


def test_a_pod_that_is_deleted_by_force_is_lost_once_and_one_that_drained_first_is_not() -> None:
    forced = replace(WORKER, terminating=True, force_deleted=True, ready=False)
    said = "Worker chat-main-1 of pool main is lost (its pod was deleted by force, without time to finish its streams)."
    assert told((WORKER,), (forced,), ()) == [("Warning", "WorkerLost", said)]
    draining = replace(WORKER, terminating=True, ready=False)
    assert told((WORKER,), (draining,), (forced,), ()) == []  # a kubelet ends each drain so
    assert told((replace(WORKER, host=""),), (replace(forced, host=""),), ()) == []  # no node had taken it
    tainted = replace(forced, disruption="DeletionByTaintManager: NoExecute")
    assert [reason for _, reason, _ in told((WORKER,), (tainted,), ())] == ["WorkerEvicted"]


def test_the_first_order_to_end_is_read_from_a_pods_grace_period() -> None:
    told_to_end = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    found = []
    for seconds in (0, 60):
        manifest = pod(**ran(0))
        manifest["metadata"] |= told_to_end | {"deletionGracePeriodSeconds": seconds}
        entry = read_pod(manifest)
        assert entry is not None
        found.append((entry.workers[0].terminating, entry.workers[0].force_deleted))
    assert found == [(True, True), (True, False)]


def test_a_failed_pod_is_lost_with_its_nodes_words() -> None:
    evicted = replace(WORKER, disruption="Evicted: the node was low on memory", ready=False)
    said = "Worker chat-main-1 of pool main is lost (Evicted: the node was low on memory)."
    assert told((WORKER,), (), failed=(evicted,)) == [("Warning", "WorkerLost", said)]


def test_a_disruption_is_reported_once_with_whether_streams_are_finished() -> None:
    tainted = replace(WORKER, disruption="DeletionByTaintManager: NoExecute", terminating=True)
    drained = replace(WORKER, disruption="EvictionByEvictionAPI: evicting", terminating=True)
    assert told((WORKER,), (tainted,), (tainted,), ()) == [
        (
            "Warning",
            "WorkerEvicted",
            "Worker chat-main-1 of pool main is taken away (DeletionByTaintManager: NoExecute).",
        )
    ]
    ((kind, _, said),) = told((WORKER,), (drained,), ())
    assert (kind, said.endswith("; it finishes its streams.")) == ("Normal", True)


def test_what_is_first_observed_or_listed_again_reports_nothing() -> None:
    ended = EndedWorkers()
    old = replace(WORKER, restarts=7, ended="x")
    ended.on_workers(Listed((ServiceEndpoints(KEY, (old,)),)), {})
    ended.on_workers(Upserted(ServiceEndpoints(KEY, (old,))), {})
    ended.on_workers(WatchLost("gone"), {KEY: ServiceEndpoints(KEY, (old,))})
    ended.on_workers(Listed(()), {KEY: ServiceEndpoints(KEY, (old,))})
    assert ended.take() == []


def test_an_engine_that_ended_is_reported_by_its_workers_own_count() -> None:
    ended = EndedWorkers()
    for count in (2, 2, 3, 3, 0, 1):
        ended.on_load("default/chat", "chat-main-1", load_report(engine_restarts=count))
    said = [(event.reason, event.message) for event in ended.take()]
    message = "The engine of worker chat-main-1 ended and another one was started; see its log."
    assert said == [("EngineEnded", message)] * 2
    assert ended.take() == []


def test_what_waits_to_be_reported_is_bounded() -> None:
    ended = EndedWorkers()
    for count in range(3 * WAITING):
        ended.on_load("default/chat", "chat-main-1", load_report(engine_restarts=count))
    assert len(ended.take()) == WAITING


def pod(phase: str = "Running", **status: Any) -> dict[str, Any]:
    labels = {"paceline.dev/service": "chat", "paceline.dev/pool": "main", "paceline.dev/track": "stable"}
    metadata = {"name": "chat-main-1", "namespace": "default", "labels": labels}
    return {"metadata": metadata, "spec": {}, "status": {"phase": phase, "podIP": "10.1.0.1", **status}}


def ran(restarts: int, **ended: Any) -> dict[str, Any]:
    state = {"lastState": {"terminated": ended}} if ended else {}
    return {"containerStatuses": [{"name": "worker", "restartCount": restarts, **state}]}


def test_a_pods_status_is_read_as_kubernetes_writes_it() -> None:
    roster, ended = EndpointTracker(read_pod), EndedWorkers()
    known: dict[ObjectKey, ServiceEndpoints] = {}
    disrupted = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": "node is gone"}
    for item in (
        Listed((pod(**ran(0)),)),
        Upserted(pod(**ran(1, exitCode=137, reason="OOMKilled", finishedAt="2026-01-01T00:00:00Z"))),
        Upserted(pod("Failed", conditions=[disrupted], **ran(1))),
    ):
        for event in roster.take(item):
            ended.on_workers(event, known)
            assert not isinstance(event, WatchLost)
            items = event.items if isinstance(event, Listed) else (event.item,)
            known = {one.service: one for one in items}
    killed = "the worker used more memory than its limit and was killed (OOMKilled)"
    assert [(event.reason, event.message) for event in ended.take()] == [
        ("WorkerEnded", f"Worker chat-main-1 of pool main ended ({killed}) and is started again; restart 1."),
        ("WorkerLost", "Worker chat-main-1 of pool main is lost (DeletionByPodGC: node is gone)."),
    ]
