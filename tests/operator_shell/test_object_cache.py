from typing import Any

from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_operator.state.object_cache import ObjectCache, trimmed_object
from paceline_operator.state.workqueue import Priority, ReconcileKey

CHAT = ReconcileKey(INFERENCE_SERVICE, ObjectKey("default", "chat"))


def chat(version: int, *, generation: int = 1, uid: str = "u1", **metadata: Any) -> Manifest:
    known = {"name": "chat", "namespace": "default", "uid": uid, "generation": generation}
    return {
        "kind": INFERENCE_SERVICE,
        "metadata": {**known, "resourceVersion": str(version), **metadata},
        "status": {"at": version},
    }


def test_the_first_sight_is_a_creation_and_a_new_generation_an_edit() -> None:
    objects = ObjectCache()
    first, edit = objects.put(chat(1)), objects.put(chat(2, generation=2))
    assert first is not None
    assert edit is not None
    assert (first.priority, first.came, edit.priority, edit.came) == (Priority.CREATE, True, Priority.EDIT, False)


def test_a_status_alone_wakes_nobody_and_is_known_all_the_same() -> None:
    objects = ObjectCache()
    objects.put(chat(1))
    assert objects.put(chat(2)) is None
    found = objects.get(CHAT)
    assert found is not None
    assert found["status"] == {"at": 2}


def test_an_annotation_is_an_edit() -> None:
    objects = ObjectCache()
    objects.put(chat(1))
    change = objects.put(chat(2, annotations={"paceline.dev/upgrade": "now"}))
    assert change is not None
    assert change.priority is Priority.EDIT


def test_an_older_state_and_an_older_end_are_dropped() -> None:
    objects = ObjectCache()
    objects.put(chat(5, uid="new"))
    assert objects.put(chat(4, generation=9)) is None
    assert objects.remove(chat(4, uid="old")) is None
    assert objects.uid(CHAT) == "new"


def test_an_object_that_goes_away_is_urgent_and_no_longer_given_out() -> None:
    objects = ObjectCache()
    objects.put(chat(1))
    change = objects.put(chat(2, deletionTimestamp="2026-01-01T00:00:00Z"))
    assert change is not None
    assert change.priority is Priority.DELETE
    assert objects.get(CHAT) is None
    assert objects.count(INFERENCE_SERVICE, "default") == 1


def test_a_list_removes_what_it_lacks() -> None:
    objects = ObjectCache()
    objects.put(chat(5))
    (gone,) = objects.listed(INFERENCE_SERVICE, [])
    assert (gone.item, gone.went) == (CHAT, True)
    assert objects.count(INFERENCE_SERVICE, "default") == 0


def test_a_list_brings_what_was_missed() -> None:
    objects = ObjectCache()
    (came,) = objects.listed(INFERENCE_SERVICE, [trimmed_object(chat(5))])
    assert came.came


def test_a_list_that_is_older_than_an_answer_keeps_the_answer() -> None:
    objects = ObjectCache()
    objects.put(chat(5))
    objects.answered(chat(9))
    assert objects.listed(INFERENCE_SERVICE, [trimmed_object(chat(7))]) == []
    found = objects.get(CHAT)
    assert found is not None
    assert found["status"] == {"at": 9}


def test_a_late_answer_brings_no_deleted_object_back() -> None:
    objects = ObjectCache()
    objects.put(chat(5))
    objects.remove(chat(7))
    assert objects.answered(chat(6)) is None
    assert objects.get(CHAT) is None
    objects.put(chat(8, uid="new"))
    assert objects.answered(chat(9)) is None
    assert objects.uid(CHAT) == "new"
