import pytest

from paceline_core.errors import Conflict, InvalidInput, NotFound
from paceline_core.kube import Endpoint, ObjectKey, ScaleTarget, ServiceEndpoints, ServiceRef
from paceline_core.kube.cluster import Manifest
from paceline_local.apiserver import ENDPOINTS, ObjectStore
from paceline_local.apiserver.watch_feed import WatchFeed

CHAT = ObjectKey("default", "chat")
MAIN = ScaleTarget(CHAT, "main")


def manifest(name: str = "chat", kind: str = "InferenceService") -> Manifest:
    return {"kind": kind, "metadata": {"name": name, "namespace": "default"}, "spec": {}}


def store(limit: int = 256) -> ObjectStore:
    found = ObjectStore(limit)
    found.objects.put(manifest())
    found.scales.create(MAIN, 1)
    return found


async def drained(feed: WatchFeed) -> list[str]:
    lines = []
    while line := await feed.next(0.01):
        lines.append(line["type"])
    return lines


async def test_a_watch_begins_with_everything_and_goes_on_with_changes() -> None:
    it = store()
    first, feed = it.watch("InferenceService")
    assert [item["metadata"]["name"] for item in first["items"]] == ["chat"]
    it.objects.put(manifest("other"))
    it.objects.remove("InferenceService", CHAT)
    assert await drained(feed) == ["CHANGED", "GONE"]


async def test_a_watch_of_one_kind_hears_nothing_of_another() -> None:
    it = store()
    _, feed = it.watch("Tenant")
    it.objects.put(manifest("other"))
    assert await drained(feed) == []


async def test_a_reader_that_falls_behind_is_cut_and_the_others_are_not() -> None:
    it = store(limit=3)
    _, slow = it.watch("InferenceService")
    _, quick = it.watch("InferenceService")
    for number in range(5):
        it.objects.put(manifest(f"s{number}"))
        assert await quick.next(0.1)
    assert slow.closed
    assert await slow.next(0.1) is None
    assert not quick.closed
    assert it.topics.closed == 1


async def test_closing_ends_every_watch() -> None:
    it = store()
    _, feed = it.watch(ENDPOINTS)
    it.topics.close()
    assert feed.closed


def test_every_change_has_a_new_version() -> None:
    it = store()
    before = it.objects.get("InferenceService", CHAT)["metadata"]["resourceVersion"]
    it.objects.patch_status("InferenceService", CHAT, {"x": 1}, "m")
    assert int(it.objects.get("InferenceService", CHAT)["metadata"]["resourceVersion"]) > int(before)


async def test_a_status_that_changes_nothing_is_not_published() -> None:
    it = store()
    it.objects.patch_status("InferenceService", CHAT, {"x": 1}, "m")
    _, feed = it.watch("InferenceService")
    it.objects.patch_status("InferenceService", CHAT, {"x": 1}, "m")
    assert await drained(feed) == []


def test_a_status_for_another_version_is_refused() -> None:
    it = store()
    seen = it.objects.get("InferenceService", CHAT)["metadata"]["resourceVersion"]
    it.objects.patch_status("InferenceService", CHAT, {"x": 1}, "m", seen)
    with pytest.raises(Conflict):
        it.objects.patch_status("InferenceService", CHAT, {"x": 2}, "m", seen)
    assert it.objects.get("InferenceService", CHAT)["status"] == {"x": 1}


def test_the_status_survives_a_new_spec() -> None:
    it = store()
    it.objects.patch_status("InferenceService", CHAT, {"x": 1}, "m")
    it.objects.put({**manifest(), "spec": {"new": True}})
    found = it.objects.get("InferenceService", CHAT)
    assert (found["spec"], found["status"]) == ({"new": True}, {"x": 1})


async def test_equal_endpoints_are_not_published_again() -> None:
    it = store()
    _, feed = it.watch(ENDPOINTS)
    worker = Endpoint("w", "main", "stable", "abc", "127.0.0.1", 1, ready=True)
    for _ in range(2):
        it.put_endpoints(ServiceEndpoints(CHAT, (worker,)))
    assert await drained(feed) == ["CHANGED"]


def test_the_second_of_two_writers_of_a_scale_loses() -> None:
    it = store()
    read = it.scales.get(MAIN)
    assert it.scales.set(MAIN, 3, read.version).replicas == 3
    with pytest.raises(Conflict, match="at version 2, not 1"):
        it.scales.set(MAIN, 5, read.version)
    assert it.scales.get(MAIN).replicas == 3


def test_a_lease_has_one_holder_until_it_runs_out() -> None:
    it = store()
    it.leases.take("autoscaler", "a", ttl_s=10.0, now=0.0)
    it.leases.take("autoscaler", "a", ttl_s=10.0, now=5.0)
    with pytest.raises(Conflict, match="held by a"):
        it.leases.take("autoscaler", "b", ttl_s=10.0, now=14.9)
    it.leases.take("autoscaler", "b", ttl_s=10.0, now=15.0)


def test_only_its_holder_gives_a_lease_back() -> None:
    it = store()
    it.leases.take("autoscaler", "a", ttl_s=10.0, now=0.0)
    it.leases.release("autoscaler", "b")
    with pytest.raises(Conflict):
        it.leases.take("autoscaler", "b", ttl_s=10.0, now=1.0)
    it.leases.release("autoscaler", "a")
    it.leases.take("autoscaler", "b", ttl_s=10.0, now=1.0)


def test_a_state_belongs_to_one_uid() -> None:
    it = store().states
    it.put(ServiceRef(CHAT, "u1"), {"state": "{}"})
    assert it.get(ServiceRef(CHAT, "u1")) == {"state": "{}"}
    with pytest.raises(NotFound, match="default/chat of uid 'u2'"):
        it.get(ServiceRef(CHAT, "u2"))


def test_a_state_is_bounded() -> None:
    with pytest.raises(InvalidInput, match="at most"):
        store().states.put(ServiceRef(CHAT, "u1"), {"state": "x" * (1 << 20)})


def test_an_unknown_kind_is_refused_by_name() -> None:
    with pytest.raises(NotFound, match="'Pod'"):
        store().watch("Pod")
