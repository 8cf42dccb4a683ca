from typing import Any

from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_operator.state.child_cache import NAMESPACE, ChildCache, trimmed
from paceline_operator.state.workqueue import Priority, ReconcileKey

CHAT = ReconcileKey(INFERENCE_SERVICE, ObjectKey("default", "chat"))
WORKERS = ObjectKey("default", "chat-workers")


def child(version: int, *, uid: str = "u1", owner: str | None = "chat", **spec: Any) -> Manifest:
    reference = {"kind": INFERENCE_SERVICE, "name": owner, "uid": "owner", "controller": True}
    metadata = {
        "name": "chat-workers",
        "namespace": "default",
        "uid": uid,
        "resourceVersion": str(version),
        "labels": {"app.kubernetes.io/managed-by": "paceline", "paceline.dev/service": "chat"},
        "ownerReferences": [reference] if owner else [],
    }
    return {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec}


def pool(version: int, replicas: int, ready: int) -> Manifest:
    body = child(version)
    metadata = {**body["metadata"], "name": "chat-main"}
    return {
        **body,
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {"replicas": replicas},
        "status": {"readyReplicas": ready},
    }


def test_a_late_event_does_not_undo_what_our_own_write_was_answered() -> None:
    cache = ChildCache()
    cache.put(child(5, port=1))
    cache.put(child(9, port=2), answer=True)
    assert cache.put(child(7, port=1)) is None
    found = cache.get("Service", WORKERS)
    assert found is not None
    assert b'"port":2' in found.content


def test_the_echo_of_our_own_write_wakes_nobody() -> None:
    cache = ChildCache()
    cache.put(child(9), answer=True)
    assert cache.put(child(9)) is None


def test_a_late_end_of_the_object_before_does_not_remove_its_successor() -> None:
    cache = ChildCache()
    cache.put(child(5, uid="old"))
    cache.put(child(9, uid="new"), answer=True)
    assert cache.remove(child(8, uid="old")) is None
    assert cache.get("Service", WORKERS) is not None


def test_an_end_wakes_the_owner() -> None:
    cache = ChildCache()
    cache.put(child(5))
    wake = cache.remove(child(6))
    assert wake is not None
    assert (wake.item, wake.priority) == (CHAT, Priority.EDIT)
    assert cache.group(CHAT) == {}


def test_late_news_of_an_object_that_we_deleted_are_dropped() -> None:
    cache = ChildCache()
    cache.put(child(5, uid="old"))
    cache.deleted("Service", WORKERS, "old")
    assert cache.put(child(6, uid="old")) is None
    assert cache.get("Service", WORKERS) is None
    cache.put(child(8, uid="new"))
    assert cache.get("Service", WORKERS) is not None


def test_a_list_removes_what_it_lacks_and_wakes_whom_it_concerns() -> None:
    cache = ChildCache()
    cache.put(child(5))
    wakes, doubtful = cache.listed("Service", [])
    assert [wake.item for wake in wakes] == [CHAT]
    assert doubtful == []


def test_what_we_wrote_while_the_watch_was_lost_is_doubtful_until_asked_for() -> None:
    cache = ChildCache()
    cache.lose("Service")
    cache.put(child(9), answer=True)
    wakes, doubtful = cache.listed("Service", [])
    assert (wakes, doubtful) == ([], [WORKERS])
    assert cache.get("Service", WORKERS) is not None
    assert cache.absent("Service", WORKERS) is not None


def test_what_we_wrote_before_the_watch_was_lost_is_gone_when_the_list_lacks_it() -> None:
    cache = ChildCache()
    cache.put(child(9), answer=True)
    cache.lose("Service")
    _, doubtful = cache.listed("Service", [])
    assert doubtful == []
    assert cache.get("Service", WORKERS) is None


def test_a_list_that_is_older_than_an_answer_keeps_the_answer() -> None:
    cache = ChildCache()
    cache.lose("Service")
    cache.put(child(9, port=2), answer=True)
    cache.listed("Service", [trimmed(child(5, port=1))])
    found = cache.get("Service", WORKERS)
    assert found is not None
    assert b'"port":2' in found.content


def test_a_change_of_scale_is_most_urgent_and_a_mere_count_a_status() -> None:
    cache = ChildCache()
    cache.put(pool(1, replicas=2, ready=0))
    counted, scaled = cache.put(pool(2, replicas=2, ready=1)), cache.put(pool(3, replicas=4, ready=1))
    assert counted is not None
    assert scaled is not None
    assert (counted.priority, scaled.priority) == (Priority.STATUS, Priority.DELETE)


def test_a_change_that_no_plan_looks_at_wakes_nobody() -> None:
    cache = ChildCache()
    cache.put(child(1))
    touched = child(2)
    touched["metadata"]["annotations"] = {"theirs": "yes"}
    assert cache.put(touched) is None


def test_without_an_owner_the_label_reports_whose_it_is_and_without_a_label_the_namespace() -> None:
    cache = ChildCache()
    orphan = cache.put(child(1, owner=None))
    assert orphan is not None
    assert orphan.item == CHAT
    shared = child(2, owner=None)
    shared["metadata"]["labels"].pop("paceline.dev/service")
    moved = cache.put(shared)
    assert moved is not None
    assert moved.item == ReconcileKey(NAMESPACE, ObjectKey("", "default"))
    assert cache.group(CHAT) == {}
