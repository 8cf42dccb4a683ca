"""The Cluster seam over a real API server: what gateway and autoscaler may ask of it."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.apiclients import (
    DEPLOYMENT,
    OPERATOR,
    SCALER,
    SERVICE,
    deployment,
    pod_account,
    reading,
    service,
    version_of,
)
from tests.cluster.harness.workbench import Workbench

from paceline_autoscaler.output.worker_events import EndedWorkers
from paceline_core.clock import ManualClock, SystemClock
from paceline_core.errors import Conflict, NotFound
from paceline_core.kube import Deleted, Event, Listed, Namespaces, ObjectKey, ScaleTarget, ServiceRef, Upserted
from paceline_core.kube.client.client import KubeClient
from paceline_core.kube.client.resource import RESOURCES
from paceline_core.kube.cluster import Manifest
from paceline_core.kube.connect import ClusterConfig, connect
from paceline_core.kube.events import GAP_S, EventRecorder
from paceline_core.kube.kubernetes import KubernetesCluster, state_name
from paceline_core.kube.leader_election import LeaseClient
from paceline_gateway.usage.types import UsageAmount, UsageEntry, status_of

pytestmark = pytest.mark.real

TTL_S = 15.0
CONFIG = RESOURCES["ConfigMap"]


@pytest.fixture
async def cluster(bench: Workbench, place: str) -> AsyncIterator[KubernetesCluster]:
    found = await connect(ClusterConfig(kubeconfig=bench.kubeconfig, namespaces=(place,)), place)
    assert isinstance(found, KubernetesCluster)
    yield found
    await found.close()


async def made(api: KubeClient, place: str, name: str = "chat") -> ObjectKey:
    await api.apply(SERVICE, service(place, name), "kubectl")
    return ObjectKey(place, name)


async def test_services_are_watched(api: KubeClient, cluster: KubernetesCluster, place: str) -> None:
    async with reading(cluster.watch("InferenceService")) as watch:
        assert await anext(watch) == Listed(())
        key = await made(api, place)
        event = await anext(watch)
        assert isinstance(event, Upserted)
        assert (event.item["kind"], event.item["metadata"]["name"]) == ("InferenceService", "chat")
        await api.delete(SERVICE, key)
        assert isinstance(await anext(watch), Deleted)
    assert [pulse.name for pulse in cluster.pulses] == ["InferenceService"]


async def test_only_labelled_secrets_of_the_keys_namespace_are_read(
    api: KubeClient, bench: Workbench, cluster: KubernetesCluster, place: str
) -> None:
    with bench.namespace() as keys:
        for namespace, name, labels in (
            (keys, "key", {"paceline.dev/tenant": "x"}),
            (keys, "other", {}),
            (place, "ours", {"paceline.dev/tenant": "x"}),
        ):
            metadata = {"namespace": namespace, "name": name, "labels": labels}
            body = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {"a": "b"}}
            await api.create(RESOURCES["Secret"], namespace, body)
        here = KubernetesCluster(api, Namespaces(place, (), keys))
        async with reading(here.watch("Secret")) as watch:
            listed = await anext(watch)
        assert isinstance(listed, Listed)
        assert [item["metadata"]["name"] for item in listed.items] == ["key"]
    async with reading(cluster.watch("Secret")) as watch:
        assert await anext(watch) == Listed(())  # of <place>-tenant-keys, which is not there


async def test_profiles_that_may_not_be_read_are_an_empty_list(bench: Workbench, place: str, tmp_path: Path) -> None:
    async with (
        pod_account(bench, place, tmp_path) as api,
        reading(KubernetesCluster(api, Namespaces(place)).watch("AcceleratorProfile")) as watch,
    ):
        assert await anext(watch) == Listed(())


async def test_a_pool_is_scaled_against_what_was_seen(api: KubeClient, cluster: KubernetesCluster, place: str) -> None:
    target = ScaleTarget(ObjectKey(place, "chat"), "main")
    key = ObjectKey(place, "chat-main")
    await api.apply_new(DEPLOYMENT, deployment(place, "chat-main", 0), OPERATOR)
    await version_of(api, key)
    seen = await cluster.get_scale(target)
    assert seen.replicas == 0
    await api.merge(DEPLOYMENT, key, {"metadata": {"annotations": {"somebody": "wrote"}}})
    grown = await cluster.set_scale(target, 2, seen.version)
    assert grown.replicas == 2
    with pytest.raises(Conflict):
        await cluster.set_scale(target, 9, seen.version)
    assert (await cluster.get_scale(target)).replicas == 2


async def test_a_pool_made_anew_is_not_the_one_that_was_seen(
    api: KubeClient, cluster: KubernetesCluster, place: str
) -> None:
    target = ScaleTarget(ObjectKey(place, "chat"), "main")
    await api.apply_new(DEPLOYMENT, deployment(place, "chat-main", 0), OPERATOR)
    seen = await cluster.get_scale(target)
    await api.delete(DEPLOYMENT, ObjectKey(place, "chat-main"))
    await api.apply_new(DEPLOYMENT, deployment(place, "chat-main", 0), OPERATOR)
    with pytest.raises(Conflict):
        await cluster.set_scale(target, 2, seen.version)
    with pytest.raises(NotFound):
        await cluster.get_scale(replace(target, pool="other"))


async def test_two_managers_share_the_conditions_of_one_status(
    api: KubeClient, cluster: KubernetesCluster, place: str
) -> None:
    key = await made(api, place)
    await cluster.patch_status("InferenceService", key, {"conditions": [condition("Ready")]}, OPERATOR)
    await cluster.patch_status(
        "InferenceService", key, {"conditions": [condition("SLOMet")], "scaling": {"desired": 2}}, SCALER
    )
    await cluster.patch_status("InferenceService", key, {"conditions": [condition("Ready", "False")]}, OPERATOR)
    status = (await api.get(SERVICE, key))["status"]
    assert {found["type"]: found["status"] for found in status["conditions"]} == {"Ready": "False", "SLOMet": "True"}
    assert status["scaling"]["desired"] == 2
    await cluster.patch_status("InferenceService", key, {"conditions": [condition("SLOMet")]}, SCALER)
    after = (await api.get(SERVICE, key))["status"]
    assert "scaling" not in after
    assert len(after["conditions"]) == 2


async def test_a_tenants_usage_is_written_onto_the_version_that_was_read_and_leaves_the_operators_part(
    api: KubeClient, cluster: KubernetesCluster, place: str
) -> None:
    tenants, key = RESOURCES["Tenant"], ObjectKey(place, "team")
    head = {"apiVersion": tenants.api_version, "kind": "Tenant", "metadata": {"namespace": place, "name": "team"}}
    made = await api.apply(tenants, {**head, "spec": {"services": ["*"]}}, "kubectl")
    first = made["metadata"]["resourceVersion"]
    await cluster.patch_status("Tenant", key, _usage("g0", "g1"), "paceline-gateway", first)
    with pytest.raises(Conflict):
        await cluster.patch_status("Tenant", key, _usage("g2"), "paceline-gateway", first)
    await cluster.patch_status("Tenant", key, {"conditions": [condition("Accepted")]}, OPERATOR)
    second = (await api.get(tenants, key))["metadata"]["resourceVersion"]
    await cluster.patch_status("Tenant", key, _usage("settled", "g1"), "paceline-gateway", second)
    status = (await api.get(tenants, key))["status"]
    assert status["usage"] == _usage("settled", "g1")["usage"]
    assert [found["type"] for found in status["conditions"]] == ["Accepted"]


def _usage(*gateways: str) -> dict[str, Any]:
    spent = UsageAmount(1, 10, 20, Decimal("0.000001"))
    return status_of([UsageEntry(each, "2026-11", spent, "2026-11-22T10:00:00Z") for each in gateways], "2026-11")


def condition(kind: str, status: str = "True") -> dict[str, Any]:
    moment = "2026-01-01T00:00:00Z"
    return {"type": kind, "status": status, "reason": "Because", "message": "it is so", "lastTransitionTime": moment}


async def test_a_status_of_nobody_is_not_made(cluster: KubernetesCluster, place: str) -> None:
    with pytest.raises(NotFound):
        await cluster.patch_status("InferenceService", ObjectKey(place, "absent"), {"scaling": {"desired": 1}}, SCALER)


LONGEST = ObjectKey("n" * 63, "s" * 40)


async def test_what_was_learned_lies_in_pacelines_namespace_until_it_is_deleted(
    api: KubeClient, cluster: KubernetesCluster, place: str
) -> None:
    chat = ServiceRef(ObjectKey(place, "chat"), "8a7c")
    assert await cluster.get_state(chat) is None
    await cluster.put_state(chat, {"state": "1"})
    await cluster.put_state(chat, {"state": "2"})
    assert await cluster.get_state(chat) == {"state": "2"}
    stored = await api.get(CONFIG, ObjectKey(place, state_name(chat.key)))
    labels = {
        f"paceline.dev/service{end}": value for end, value in (("-namespace", place), ("", "chat"), ("-uid", "8a7c"))
    }
    assert labels.items() <= stored["metadata"]["labels"].items()
    assert await cluster.list_states() == (chat,)
    await cluster.delete_state(chat)
    await cluster.delete_state(chat)
    assert (await cluster.get_state(chat), await cluster.list_states()) == (None, ())


async def test_a_service_made_anew_has_no_state_and_its_own_is_not_deleted_for_the_old_one(
    cluster: KubernetesCluster, place: str
) -> None:
    old, new = (ServiceRef(ObjectKey(place, "chat"), uid) for uid in ("old", "new"))
    await cluster.put_state(old, {"state": "1"})
    assert await cluster.get_state(new) is None
    await cluster.put_state(new, {"state": "2"})
    await cluster.delete_state(old)
    assert await cluster.get_state(new) == {"state": "2"}


async def test_the_longest_names_fit_and_states_of_namespaces_that_are_not_watched_are_not_listed(
    api: KubeClient, cluster: KubernetesCluster, place: str
) -> None:
    await cluster.put_state(ServiceRef(LONGEST, "u"), {"state": "1"})
    assert await cluster.get_state(ServiceRef(LONGEST, "u")) == {"state": "1"}
    assert await cluster.list_states() == ()
    assert await KubernetesCluster(api, Namespaces(place)).list_states() == (ServiceRef(LONGEST, "u"),)


async def test_of_two_that_want_a_lease_one_has_it(api: KubeClient, place: str) -> None:
    leases = [LeaseClient(api, place, SystemClock()) for _ in "ab"]
    taken = await asyncio.gather(*(leases[n].acquire("l", "ab"[n], TTL_S) for n in range(2)))
    assert sorted(taken) == [False, True]
    winner = taken.index(True)
    assert await leases[winner].acquire("l", "ab"[winner], TTL_S)
    assert not await leases[1 - winner].acquire("l", "ab"[1 - winner], TTL_S)
    await leases[1 - winner].release("l", "ab"[1 - winner])
    assert not await leases[1 - winner].acquire("l", "ab"[1 - winner], TTL_S)
    await leases[winner].release("l", "ab"[winner])
    assert await leases[1 - winner].acquire("l", "ab"[1 - winner], TTL_S)
    assert [await leases[0].holder(name) for name in ("l", "none")] == ["ab"[1 - winner], ""]


async def test_a_suspended_holder_loses_its_lease_and_learns_it(api: KubeClient, place: str) -> None:
    clock = ManualClock()
    suspended, waiting = LeaseClient(api, place, clock), LeaseClient(api, place, clock)
    assert await suspended.acquire("l", "a", TTL_S)
    clock.advance(3600)
    assert not await waiting.acquire("l", "b", TTL_S)
    clock.advance(TTL_S)
    assert await waiting.acquire("l", "b", TTL_S)
    assert not await suspended.acquire("l", "a", TTL_S)
    found = await api.get(RESOURCES["Lease"], ObjectKey(place, "l"))
    assert found["spec"]["leaseTransitions"] == 1


async def test_a_lease_that_was_never_made_is_released_in_peace(cluster: KubernetesCluster) -> None:
    await cluster.leases.release("absent", "a")


async def events(api: KubeClient, place: str) -> list[Manifest]:
    return await api.list(RESOURCES["Event"], place, fields="reason=ScaledUp")


async def test_one_event_many_times_is_one_object_that_counts(bench: Workbench, api: KubeClient, place: str) -> None:
    clock, key = ManualClock(), await made(api, place)
    recorder = EventRecorder(api, SCALER, clock)
    for number in range(50):
        recorder.record(Event("InferenceService", key, "Normal", "ScaledUp", f"{number} to {number + 1} replicas"))
    await recorder.flush()
    (first,) = await events(api, place)
    assert (first["count"], first["message"]) == (50, "49 to 50 replicas")
    for _ in range(5):
        recorder.record(Event("InferenceService", key, "Normal", "ScaledUp", "7 to 8 replicas"))
    clock.advance(GAP_S)
    await recorder.flush()
    (second,) = await events(api, place)
    assert (second["count"], second["message"]) == (55, "7 to 8 replicas")
    await recorder.close()
    assert "7 to 8 replicas" in bench.kubectl.within(place)("describe", "inferenceservice", "chat")


async def test_an_event_object_that_expired_is_made_anew(api: KubeClient, place: str) -> None:
    clock, key = ManualClock(), await made(api, place)
    recorder = EventRecorder(api, SCALER, clock)
    told = Event("InferenceService", key, "Normal", "ScaledUp", "1 to 2 replicas")
    for count in (1, 2):
        recorder.record(told)
        await recorder.flush()
        (found,) = await events(api, place)
        assert found["count"] == count
        await api.delete(RESOURCES["Event"], ObjectKey(place, found["metadata"]["name"]))
        clock.advance(GAP_S)
    await recorder.close()


async def test_events_of_the_seam_are_written_before_it_closes(bench: Workbench, api: KubeClient, place: str) -> None:
    key = await made(api, place)
    cluster = await connect(ClusterConfig(kubeconfig=bench.kubeconfig), place, workers="pods")
    await cluster.event(Event("InferenceService", key, "Warning", "ScaledUp", "why", {"pool": "main"}))
    await cluster.close()
    (found,) = await events(api, place)
    assert (found["source"]["component"], found["involvedObject"]["name"]) == (SCALER, "chat")
    assert found["metadata"]["annotations"] == {"paceline.dev/pool": "main"}


async def test_an_event_about_nothing_harms_nobody(cluster: KubernetesCluster, place: str) -> None:
    await cluster.event(Event("InferenceService", ObjectKey(place, "absent"), "Normal", "ScaledUp", "why"))
    await cluster.event(Event("Unheard", ObjectKey(place, "absent"), "Normal", "ScaledUp", "why"))


async def test_workers_come_from_the_services_slices(api: KubeClient, cluster: KubernetesCluster, place: str) -> None:
    metadata: dict[str, Any] = {"namespace": place, "name": "chat-workers", "labels": {"paceline.dev/service": "chat"}}
    ports = [{"name": "http", "port": 8000}]
    headless = {"apiVersion": "v1", "kind": "Service", "metadata": metadata}
    spec = {"clusterIP": "None", "selector": {"paceline.dev/service": "chat"}, "ports": ports}
    async with reading(cluster.watch_endpoints()) as watch:
        assert await anext(watch) == Listed(())
        await api.apply(RESOURCES["Service"], {**headless, "spec": spec}, OPERATOR)
        empty = await anext(watch)
        assert isinstance(empty, Upserted), "the controller copies the Service's label to its slice"
        assert (empty.item.service, empty.item.endpoints) == (ObjectKey(place, "chat"), ())
        await api.create(RESOURCES["EndpointSlice"], place, slice_of(place))
        told = await anext(watch)
    assert isinstance(told, Upserted)
    (worker,) = told.item.endpoints
    assert (worker.pool, worker.track, worker.host, worker.port) == ("main", "canary", "198.51.100.7", 8000)


def slice_of(place: str) -> Manifest:
    metadata = {"namespace": place, "name": "by-hand", "labels": {"paceline.dev/service": "chat"}}
    endpoint = {
        "addresses": ["198.51.100.7"],
        "conditions": {"ready": True},
        "targetRef": {"kind": "Pod", "name": "chat-main-canary-7d4f8-abcde", "namespace": place},
    }
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": metadata,
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": 8000}],
        "endpoints": [endpoint],
    }


async def test_workers_come_from_pods_as_the_controller_names_them(api: KubeClient, place: str) -> None:
    cluster = KubernetesCluster(api, Namespaces(place, (place,)), "pods")
    body = deployment(place, "chat-main", 1)
    body["spec"]["selector"]["matchLabels"] = labels = {"paceline.dev/service": "chat", "paceline.dev/pool": "main"}
    body["spec"]["template"]["metadata"]["labels"] = labels
    async with reading(cluster.watch_endpoints()) as watch:
        assert await anext(watch) == Listed(())
        await api.apply_new(DEPLOYMENT, body, OPERATOR)
        told = await anext(watch)
    assert isinstance(told, Upserted)
    (worker,) = told.item.endpoints
    assert worker.name.startswith("chat-main-")
    assert (worker.pool, worker.host, worker.ready) == ("main", "", False)


async def test_a_deletion_by_force_is_told_from_others_by_its_first_order_to_end(
    bench: Workbench, api: KubeClient, place: str
) -> None:
    cluster, kubectl = KubernetesCluster(api, Namespaces(place, (place,)), "pods"), bench.kubectl.within(place)
    container = {"name": "worker", "image": "a:1"}
    spec = {"nodeName": "of-nobody", "terminationGracePeriodSeconds": 60, "containers": [container]}
    labels = {"paceline.dev/service": "chat", "paceline.dev/pool": "main"}
    kubectl("wait", "--for=create", "serviceaccount/default", "--timeout=30s")
    for name in ("forced", "plain"):
        metadata = {"namespace": place, "name": name, "labels": labels}
        await api.create(
            RESOURCES["Pod"], place, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )
        address = '{"status": {"phase": "Running", "podIP": "192.0.2.7", "podIPs": [{"ip": "192.0.2.7"}]}}'
        kubectl("patch", "pod", name, "--subresource=status", "--type=merge", "--patch", address)
    ended, known, orders = EndedWorkers(), {}, []
    async with reading(cluster.watch_endpoints()) as watch:
        listed = await anext(watch)
        assert isinstance(listed, Listed)
        known = {item.service: item for item in listed.items}
        for name, *force in (("plain",), ("forced", "--force", "--grace-period=0")):
            kubectl("delete", "pod", name, "--wait=false", *force)
            event = await anext(watch)
            assert isinstance(event, Upserted)
            ended.on_workers(event, known)
            known = {event.item.service: event.item}
            orders += [(w.terminating, w.force_deleted) for w in event.item.endpoints if w.name == name]
    assert orders == [(True, False), (True, True)]
    assert [(one.reason, "forced" in one.message) for one in ended.take()] == [("WorkerLost", True)]
    kubectl("delete", "pod", "plain", "--force", "--grace-period=0")
