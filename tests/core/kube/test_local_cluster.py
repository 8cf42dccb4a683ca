"""The client of the Cluster seam against the supervisor's server, over a real Unix socket."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import pytest

from paceline_core.clock import SystemClock
from paceline_core.errors import Conflict, NotFound, Unreachable
from paceline_core.kube import (
    Deleted,
    Endpoint,
    Event,
    Listed,
    ObjectKey,
    ScaleTarget,
    ServiceEndpoints,
    ServiceRef,
    StartStage,
    Upserted,
    WatchLost,
)
from paceline_core.kube.cluster import WatchEvent
from paceline_core.kube.local import LocalCluster
from paceline_local.apiserver import ObjectStore
from paceline_local.apiserver.api import make_app, serving

T = TypeVar("T")
CHAT = ObjectKey("default", "chat")
MAIN = ScaleTarget(CHAT, "main")
MANIFEST = {"kind": "InferenceService", "metadata": {"name": "chat", "namespace": "default"}, "spec": {"a": 1}}
WORKER = Endpoint(
    "chat-main-1", "main", "stable", "abc", "127.0.0.1", 20001, ready=True, created="2026-01-01T00:00:00Z"
)


@pytest.fixture
def socket() -> Iterator[Path]:
    with TemporaryDirectory(prefix="pl-") as folder:
        yield Path(folder) / "api.sock"


@pytest.fixture
def store() -> ObjectStore:
    found = ObjectStore()
    found.objects.put(MANIFEST)
    found.scales.create(MAIN, 1)
    return found


@pytest.fixture
def changes() -> list[str]:
    return []


@pytest.fixture
async def cluster(store: ObjectStore, socket: Path, changes: list[str]) -> AsyncIterator[LocalCluster]:
    async with serving(make_app(store, SystemClock(), lambda: changes.append("scale")), socket):
        client = LocalCluster(socket)
        yield client
        store.topics.close()
        await client.close()


@asynccontextmanager
async def reading(watch: AsyncIterator[WatchEvent[T]]) -> AsyncIterator[AsyncIterator[WatchEvent[T]]]:
    assert isinstance(watch, AsyncGenerator)
    try:
        yield watch
    finally:
        await watch.aclose()


def mode(path: Path) -> int:
    return path.stat().st_mode


async def following(watch: AsyncIterator[WatchEvent[T]]) -> WatchEvent[T]:
    async with asyncio.timeout(5):
        return await anext(watch)


async def test_a_watch_lists_then_follows(cluster: LocalCluster, store: ObjectStore) -> None:
    async with reading(cluster.watch("InferenceService")) as watch:
        first = await following(watch)
        assert isinstance(first, Listed)
        assert first.items[0]["spec"] == {"a": 1}
        store.objects.put({**MANIFEST, "spec": {"a": 2}})
        second = await following(watch)
        assert isinstance(second, Upserted)
        assert second.item["spec"] == {"a": 2}
        store.objects.remove("InferenceService", CHAT)
        assert isinstance(await following(watch), Deleted)


async def test_endpoints_arrive_as_they_were_published(cluster: LocalCluster, store: ObjectStore) -> None:
    async with reading(cluster.watch_endpoints()) as watch:
        assert await following(watch) == Listed(())
        published = ServiceEndpoints(CHAT, (WORKER, replace(WORKER, ready=False, stage=StartStage.LOAD)))
        store.put_endpoints(published)
        arrived = await following(watch)
        assert arrived == Upserted(published)
        assert isinstance(arrived, Upserted)
        assert isinstance(arrived.item.endpoints[1].stage, StartStage)


async def test_a_watch_that_was_cut_says_so_and_lists_again(cluster: LocalCluster, store: ObjectStore) -> None:
    async with reading(cluster.watch("InferenceService")) as watch:
        assert isinstance(await following(watch), Listed)
        store.topics.close()
        assert isinstance(await following(watch), WatchLost)
        assert isinstance(await following(watch), Listed)


async def test_a_scale_is_set_once_a_version(cluster: LocalCluster, changes: list[str]) -> None:
    read = await cluster.get_scale(MAIN)
    assert read.replicas == 1
    assert (await cluster.set_scale(MAIN, 4, read.version)).replicas == 4
    with pytest.raises(Conflict):
        await cluster.set_scale(MAIN, 9, read.version)
    assert (await cluster.get_scale(MAIN)).replicas == 4
    assert changes == ["scale"]


async def test_who_set_a_scale_is_not_known(cluster: LocalCluster) -> None:
    await cluster.set_scale(MAIN, 4, (await cluster.get_scale(MAIN)).version)
    assert await cluster.scale_writer(MAIN) == ""


async def test_an_unknown_pool_is_not_found(cluster: LocalCluster) -> None:
    with pytest.raises(NotFound, match="no pool 'other'"):
        await cluster.get_scale(ScaleTarget(CHAT, "other"))


async def test_a_negative_scale_is_refused(cluster: LocalCluster) -> None:
    read = await cluster.get_scale(MAIN)
    with pytest.raises(Unreachable, match="422"):
        await cluster.set_scale(MAIN, -1, read.version)


async def test_two_managers_share_a_status(cluster: LocalCluster, store: ObjectStore) -> None:
    await cluster.patch_status("InferenceService", CHAT, {"workload": {"summary": "1/1"}}, "operator")
    await cluster.patch_status("InferenceService", CHAT, {"scaling": {"desired": 1}}, "autoscaler")
    status: dict[str, Any] = store.objects.get("InferenceService", CHAT)["status"]
    assert status == {"workload": {"summary": "1/1"}, "scaling": {"desired": 1}}


async def test_a_status_is_patched_once_a_version(cluster: LocalCluster, store: ObjectStore) -> None:
    seen = store.objects.get("InferenceService", CHAT)["metadata"]["resourceVersion"]
    await cluster.patch_status("InferenceService", CHAT, {"scaling": {"desired": 1}}, "autoscaler", seen)
    with pytest.raises(Conflict):
        await cluster.patch_status("InferenceService", CHAT, {"scaling": {"desired": 2}}, "autoscaler", seen)


async def test_a_state_comes_back_as_it_was_put_to_its_uid_alone_and_goes_when_it_is_deleted(
    cluster: LocalCluster,
) -> None:
    chat, before = ServiceRef(CHAT, "8a7c"), ServiceRef(CHAT, "11b0")
    assert await cluster.get_state(chat) is None
    await cluster.put_state(before, {"state": "0"})
    await cluster.put_state(chat, {"state": '{"ü": 1}'})
    assert await cluster.get_state(chat) == {"state": '{"ü": 1}'}
    assert await cluster.get_state(before) is None
    await cluster.delete_state(before)
    assert await cluster.list_states() == (chat,)
    await cluster.delete_state(chat)
    assert (await cluster.list_states(), await cluster.get_state(chat)) == ((), None)


async def test_a_lease_excludes_others_until_it_is_released(cluster: LocalCluster) -> None:
    assert await cluster.leases.acquire("autoscaler", "a", 30.0)
    assert await cluster.leases.acquire("autoscaler", "a", 30.0)
    assert not await cluster.leases.acquire("autoscaler", "b", 30.0)
    await cluster.leases.release("autoscaler", "a")
    assert await cluster.leases.acquire("autoscaler", "b", 30.0)


async def test_who_holds_a_lease_can_be_asked(cluster: LocalCluster) -> None:
    assert await cluster.leases.holder("quota") == ""
    await cluster.leases.acquire("quota", "127.0.0.1:8081/g0", 30.0)
    assert await cluster.leases.holder("quota") == "127.0.0.1:8081/g0"
    await cluster.leases.release("quota", "127.0.0.1:8081/g0")
    assert await cluster.leases.holder("quota") == ""


async def test_events_are_kept_with_their_time(cluster: LocalCluster, store: ObjectStore) -> None:
    await cluster.event(Event("InferenceService", CHAT, "Normal", "ScaledUp", "1 to 2", {"pool": "main"}))
    (event,) = store.events
    assert (event["key"], event["reason"], event["extra"]) == ("default/chat", "ScaledUp", {"pool": "main"})
    assert event["time"].endswith("Z")


@pytest.mark.usefixtures("cluster")
async def test_nobody_but_this_user_can_connect(socket: Path) -> None:
    assert mode(socket) & 0o077 == 0


async def test_a_dead_supervisor_is_unreachable_and_events_still_do_not_raise(socket: Path) -> None:
    client = LocalCluster(socket)
    with pytest.raises(Unreachable):
        await client.get_scale(MAIN)
    await client.event(Event("InferenceService", CHAT, "Normal", "X", "y"))
    await client.close()


async def test_a_watch_outlives_its_supervisor(store: ObjectStore, socket: Path) -> None:
    client = LocalCluster(socket)
    app = make_app(store, SystemClock(), lambda: None)
    async with reading(client.watch("InferenceService")) as watch:
        async with serving(app, socket):
            assert isinstance(await following(watch), Listed)
            store.topics.close()
        seen = [await following(watch), await following(watch)]
        assert all(isinstance(event, WatchLost) for event in seen)
        async with serving(app, socket):
            while not isinstance(event := await following(watch), Listed):
                assert isinstance(event, WatchLost)
            store.topics.close()
    await client.close()
