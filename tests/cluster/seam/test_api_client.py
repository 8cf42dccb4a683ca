"""The client and what the operator's writing rests on, against a real API server with its controllers."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.apiclients import (
    DEPLOYMENT,
    OPERATOR,
    REPLICAS,
    SCALER,
    config,
    deployment,
    namespace,
    owners_of_replicas,
    pod_account,
    reading,
    replicas_only,
    version_of,
)
from tests.cluster.harness.workbench import Workbench

from paceline_core.errors import ApiError, Conflict, Forbidden, NotFound
from paceline_core.kube import Deleted, Listed, ObjectKey, Upserted, WatchLost
from paceline_core.kube.client.client import PAGE, KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.client.watch import WatchLiveness, WatchOptions, watch_all
from paceline_core.kube.cluster import Manifest

pytestmark = pytest.mark.real

CONFIG = RESOURCES["ConfigMap"]
NOBODY = "00000000-0000-0000-0000-000000000000"


async def scaled(api: KubeClient, key: ObjectKey, replicas: int) -> None:
    """Somebody moves the replicas through the scale subresource."""
    await version_of(api, key)
    found = await api.get(DEPLOYMENT, key, "scale")
    await api.replace(DEPLOYMENT, key, {**found, "spec": {"replicas": replicas}}, "scale", SCALER)


async def test_what_is_applied_twice_is_written_once(api: KubeClient, place: str) -> None:
    body = deployment(place, "pool", 0)
    await api.apply(DEPLOYMENT, body, OPERATOR)
    settled = await version_of(api, ObjectKey(place, "pool"))
    again = await api.apply(DEPLOYMENT, body, OPERATOR)
    assert again["metadata"]["resourceVersion"] == settled


def foreign(place: str) -> list[tuple[Manifest, Manifest]]:
    """(somebody's object, ours of the same name): equal, overlapping nowhere, and different."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"namespace": place, "name": "theirs"}}
    ours = deployment(place, "theirs", 2)
    return [
        (deployment(place, "theirs", 2), ours),
        (deployment(place, "theirs", 2, image="b:1"), ours),
        (config(place, "theirs", a="1"), config(place, "theirs", b="2")),
        (account, {**account, "automountServiceAccountToken": False}),
    ]


@pytest.mark.parametrize("number", range(4))
async def test_a_foreign_object_of_our_name_is_never_joined(api: KubeClient, place: str, number: int) -> None:
    theirs, ours = foreign(place)[number]
    resource, key = RESOURCES[theirs["kind"]], ObjectKey(place, "theirs")
    made = await api.create(resource, place, theirs, "kubectl-create")
    with pytest.raises(Conflict):
        await api.apply_new(resource, ours, OPERATOR)
    after = await api.get(resource, key)
    assert after["metadata"]["uid"] == made["metadata"]["uid"]
    assert OPERATOR not in {entry["manager"] for entry in after["metadata"].get("managedFields", ())}


async def test_an_apply_without_force_would_join_it_where_no_value_differs(api: KubeClient, place: str) -> None:
    """Why creation does not rest on the absence of force."""
    theirs, ours = foreign(place)[2]
    await api.create(CONFIG, place, theirs, "kubectl-create")
    joined = await api.apply(CONFIG, ours, OPERATOR, force=False)
    assert joined["data"] == {"a": "1", "b": "2"}


async def test_a_new_object_is_made_and_its_fields_are_ours_to_remove(api: KubeClient, place: str) -> None:
    await api.apply_new(CONFIG, config(place, "new", a="1", b="2"), OPERATOR)
    changed = await api.apply(CONFIG, config(place, "new", a="1"), OPERATOR)
    assert changed["data"] == {"a": "1"}


async def test_a_conflict_names_the_other_manager_and_the_field(api: KubeClient, place: str) -> None:
    await api.create(CONFIG, place, config(place, "theirs", a="1"), "kubectl-create")
    with pytest.raises(Conflict, match=r'"kubectl-create" using v1: \.data\.a'):
        await api.apply(CONFIG, config(place, "theirs", a="2"), OPERATOR, force=False)


@pytest.mark.parametrize("kind", ["ConfigMap", "Deployment"])
async def test_an_apply_for_a_replaced_object_touches_neither_it_nor_a_gap(
    api: KubeClient, place: str, kind: str
) -> None:
    body = config(place, "pool", a="1") if kind == "ConfigMap" else deployment(place, "pool", 0)
    resource = RESOURCES[kind]
    for_another = {**body, "metadata": {**body["metadata"], "uid": NOBODY, "labels": {"touched": "yes"}}}
    with pytest.raises(Conflict, match="uid"):
        await api.apply(resource, for_another, OPERATOR)
    with pytest.raises(NotFound):
        await api.get(resource, ObjectKey(place, "pool"))
    made = await api.apply(resource, body, OPERATOR)
    with pytest.raises(Conflict, match="uid"):
        await api.apply(resource, for_another, OPERATOR)
    with pytest.raises(Conflict):
        await api.delete(resource, ObjectKey(place, "pool"), uid=NOBODY)
    assert "labels" not in (await api.get(resource, ObjectKey(place, "pool")))["metadata"]
    for_it = {**for_another, "metadata": {**for_another["metadata"], "uid": made["metadata"]["uid"]}}
    assert (await api.apply(resource, for_it, OPERATOR))["metadata"]["labels"] == {"touched": "yes"}
    await api.delete(resource, ObjectKey(place, "pool"), uid=made["metadata"]["uid"])


async def test_replicas_are_handed_over_and_stay(api: KubeClient, place: str) -> None:
    key = ObjectKey(place, "pool")
    await api.apply_new(DEPLOYMENT, deployment(place, "pool", 3), OPERATOR)
    shared = await api.apply(DEPLOYMENT, replicas_only(place, "pool", 3), REPLICAS, force=False)
    assert owners_of_replicas(shared) == {OPERATOR, REPLICAS}
    without = await api.apply(DEPLOYMENT, deployment(place, "pool"), OPERATOR)
    assert (without["spec"]["replicas"], owners_of_replicas(without)) == (3, {REPLICAS})
    await scaled(api, key, 5)
    found = await api.get(DEPLOYMENT, key)
    assert (found["spec"]["replicas"], owners_of_replicas(found)) == (5, {SCALER})
    edited = await api.apply(DEPLOYMENT, deployment(place, "pool", image="b:2"), OPERATOR)
    assert (edited["spec"]["replicas"], owners_of_replicas(edited)) == (5, {SCALER})


async def test_replicas_moved_before_the_hand_over_are_kept_too(api: KubeClient, place: str) -> None:
    await api.apply_new(DEPLOYMENT, deployment(place, "pool", 3), OPERATOR)
    await scaled(api, ObjectKey(place, "pool"), 7)
    with pytest.raises(Conflict, match=rf'"{SCALER}".*\.spec\.replicas'):
        await api.apply(DEPLOYMENT, replicas_only(place, "pool", 3), REPLICAS, force=False)
    without = await api.apply(DEPLOYMENT, deployment(place, "pool"), OPERATOR)
    assert without["spec"]["replicas"] == 7


async def test_without_a_hand_over_leaving_replicas_out_resets_them(api: KubeClient, place: str) -> None:
    """Why there is a hand-over."""
    await api.apply_new(DEPLOYMENT, deployment(place, "pool", 3), OPERATOR)
    assert (await api.apply(DEPLOYMENT, deployment(place, "pool"), OPERATOR))["spec"]["replicas"] == 1


async def test_a_stale_version_of_a_scale_is_a_conflict(api: KubeClient, place: str) -> None:
    key = ObjectKey(place, "pool")
    await api.apply_new(DEPLOYMENT, deployment(place, "pool", 0), OPERATOR)
    await version_of(api, key)
    stale = await api.get(DEPLOYMENT, key, "scale")
    await scaled(api, key, 2)
    with pytest.raises(Conflict, match="has been modified"):
        await api.replace(DEPLOYMENT, key, {**stale, "spec": {"replicas": 9}}, "scale", SCALER)


async def test_an_invalid_object_is_refused_by_field(api: KubeClient, place: str) -> None:
    body = deployment(place, "pool", 0)
    body["spec"]["template"]["metadata"]["labels"] = {"app": "other"}
    with pytest.raises(ApiError, match=r"spec\.template\.metadata\.labels") as raised:
        await api.apply(DEPLOYMENT, body, OPERATOR)
    assert (raised.value.status, raised.value.reason) == (422, "Invalid")


async def test_a_merge_patch_removes_by_null(api: KubeClient, place: str) -> None:
    await api.create(CONFIG, place, config(place, "it", a="1", b="2"))
    merged = await api.merge(CONFIG, ObjectKey(place, "it"), {"data": {"a": None}}, manager="kubectl-paceline")
    assert merged["data"] == {"b": "2"}


async def test_more_than_a_page_is_listed_whole(api: KubeClient, place: str) -> None:
    names = {f"c{number}" for number in range(PAGE + 1)}
    todo = [config(place, name, a="1") for name in sorted(names)]
    for start in range(0, len(todo), 20):
        await asyncio.gather(*(api.create(CONFIG, place, body) for body in todo[start : start + 20]))
    found = {item["metadata"]["name"] for item in await api.list(CONFIG, place)}
    assert names <= found
    selected = await api.list(CONFIG, place, fields="metadata.name=c7")
    assert [item["metadata"]["name"] for item in selected] == ["c7"]


async def test_a_pods_account_without_rights_is_told_verb_and_resource(
    apiserver: Workbench, place: str, tmp_path: Path
) -> None:
    async with pod_account(apiserver, place, tmp_path) as api:
        with pytest.raises(Forbidden, match=rf'system:serviceaccount:{place}:default" cannot list resource "secrets"'):
            await api.list(RESOURCES["Secret"], place)
        async with reading(watch_all(api, WatchOptions(CONFIG, (place,)))) as watch:
            lost = await anext(watch)
    assert isinstance(lost, WatchLost)
    assert 'cannot list resource "configmaps"' in lost.reason


async def test_a_watch_sees_what_is_made_changed_and_deleted(api: KubeClient, place: str) -> None:
    selected: dict[str, Any] = {"labels": {"mine": "yes"}}
    body = config(place, "it", a="1")
    body["metadata"] |= selected
    async with reading(watch_all(api, WatchOptions(CONFIG, (place,), "mine"))) as watch:
        assert await anext(watch) == Listed(())
        await api.apply(CONFIG, body, OPERATOR)
        made = await anext(watch)
        await api.create(CONFIG, place, config(place, "other"))
        await api.delete(CONFIG, ObjectKey(place, "it"))
        gone = await anext(watch)
    assert isinstance(made, Upserted)
    assert isinstance(gone, Deleted)
    assert made.item["metadata"]["uid"] == gone.item["metadata"]["uid"]


async def test_two_namespaces_are_watched_as_one(api: KubeClient, place: str) -> None:
    async with namespace(api) as second:
        names: set[tuple[str, str]] = set()
        async with reading(watch_all(api, WatchOptions(CONFIG, (place, second)))) as watch:
            listed = await anext(watch)
            assert isinstance(listed, Listed)
            for name in (second, place):
                await api.create(CONFIG, name, config(name, "it"))
            while len(names) < 2:
                event = await anext(watch)
                assert isinstance(event, Upserted)
                metadata = event.item["metadata"]
                names |= {(metadata["namespace"], metadata["name"])} if metadata["name"] == "it" else set()
        assert names == {(place, "it"), (second, "it")}


async def test_a_watch_outlives_the_api_server(apiserver: Workbench, api: KubeClient, place: str) -> None:
    server = apiserver.machine.parts["kube-apiserver"]
    await api.create(CONFIG, place, config(place, "before"))
    pulse = WatchLiveness("configmaps")
    async with reading(watch_all(api, WatchOptions(CONFIG, (place,)), pulse)) as watch:
        assert isinstance(await anext(watch), Listed)
        await asyncio.to_thread(server.kill)
        try:
            assert isinstance(await anext(watch), WatchLost)
        finally:
            server.start()
            await asyncio.to_thread(apiserver.machine.await_api)
        back = await anext(watch)
        assert isinstance(back, Listed)
        assert "before" in {item["metadata"]["name"] for item in back.items}
        await api.create(CONFIG, place, config(place, "after"))
        while not (isinstance(event := await anext(watch), Upserted) and event.item["metadata"]["name"] == "after"):
            assert isinstance(event, Upserted)
