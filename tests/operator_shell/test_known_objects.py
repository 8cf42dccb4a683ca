from typing import Any

from paceline_core.kube import ObjectKey
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import INFERENCE_SERVICE
from paceline_operator.state.object_cache import ObjectCache, seen
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
    assert (first.urgency, first.came, edit.urgency, edit.came) == (Priority.CREATE, True, Priority.EDIT, False)


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
    assert change.urgency is Priority.EDIT


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
    assert change.urgency is Priority.DELETE
    assert objects.get(CHAT) is None
    assert objects.count(INFERENCE_SERVICE, "default") == 1


def test_a_list_says_what_is_gone_but_not_of_what_came_after_it() -> None:
    objects = ObjectCache()
    objects.put(chat(5))
    assert objects.listed(INFERENCE_SERVICE, [], version=4) == []
    (gone,) = objects.listed(INFERENCE_SERVICE, [], version=9)
    assert (gone.item, gone.went) == (CHAT, True)


def test_a_list_of_one_namespace_says_nothing_of_others() -> None:
    objects = ObjectCache()
    objects.put(chat(5))
    assert objects.listed(INFERENCE_SERVICE, [], version=9, namespace="other") == []
    assert objects.get(CHAT) is not None


def test_a_list_brings_what_was_missed() -> None:
    objects = ObjectCache()
    (came,) = objects.listed(INFERENCE_SERVICE, [seen(chat(5))], version=9)
    assert came.came
