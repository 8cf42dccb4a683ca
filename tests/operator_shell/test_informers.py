"""One watch for each kind against a small API server: what it lists and follows fills the cluster state."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, cast

import orjson
import pytest

from paceline_core.clock import ManualClock
from paceline_core.errors import Forbidden
from paceline_core.kube import Namespaces, ObjectKey
from paceline_core.kube.client.client import ClientTimeouts, KubeClient, ObjectList
from paceline_core.kube.client.errors import LogLimiter
from paceline_core.kube.client.resource import Resource
from paceline_core.kube.cluster import Manifest
from paceline_core.objects.metadata import ACCELERATOR_PROFILE, INFERENCE_SERVICE
from paceline_operator.state.child_cache import CHILD_KINDS
from paceline_operator.state.cluster_state import SELECTOR, ClusterState, Informers
from paceline_operator.state.object_cache import KINDS
from paceline_operator.state.workqueue import Priority, ReconcileKey, WorkQueue
from paceline_operator.write.executor import PlanExecutor

ITEM = ReconcileKey(INFERENCE_SERVICE, ObjectKey("team", "chat"))


class Server:
    """Lists what `objects` has, streams what is put into `lines`, refuses the kinds in `refused`."""

    limits = ClientTimeouts()

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.sparse = LogLimiter(clock)
        self.objects: dict[str, list[Manifest]] = {}
        self.refused: set[str] = set()
        self.listed: list[tuple[str, str, str]] = []
        self.lines: dict[str, asyncio.Queue[bytes]] = {}

    def jitter(self) -> float:
        return 1.0

    async def snapshot(self, resource: Resource, namespace: str, *, selector: str, trim: Any) -> ObjectList:
        self.listed.append((resource.kind, namespace, selector))
        if resource.kind in self.refused:
            raise Forbidden(
                403, "Forbidden", f'{resource.plural} is forbidden: cannot list resource "{resource.plural}"'
            )
        return ObjectList([trim(found) for found in self.objects.get(resource.kind, ())], "10")

    @contextlib.asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str]) -> AsyncIterator[AsyncIterator[bytes]]:
        yield self._chunks(path.rsplit("/", 1)[-1])

    async def _chunks(self, plural: str) -> AsyncIterator[bytes]:
        queue = self.lines.setdefault(plural, asyncio.Queue())
        while chunk := await queue.get():
            yield chunk


def chat(version: int, **metadata: Any) -> Manifest:
    known = {"name": "chat", "namespace": "team", "uid": "u1", "resourceVersion": str(version), **metadata}
    return {"kind": INFERENCE_SERVICE, "metadata": known, "spec": {}}


@contextlib.asynccontextmanager
async def following(server: Server, *watched: str) -> AsyncIterator[tuple[ClusterState, Informers, WorkQueue]]:
    queue = WorkQueue(server.clock)
    state = ClusterState(queue, ReconcileKey("SigningKeys", ObjectKey("home", "SigningKeys")))
    informers = Informers(
        cast("KubeClient", server), state, cast("PlanExecutor", None), server.clock, Namespaces("home", watched)
    )
    tasks = [asyncio.create_task(watch) for watch in informers.watches().values()]
    try:
        yield state, informers, queue
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def until(reached: Any) -> None:
    async with asyncio.timeout(5.0):
        while not reached():  # noqa: ASYNC110 - other tasks reach it
            await asyncio.sleep(0)


async def test_every_kind_is_listed_and_then_followed() -> None:
    server = Server(ManualClock())
    server.objects[INFERENCE_SERVICE] = [chat(5)]
    async with following(server) as (state, informers, queue):
        await until(lambda: state.complete)
        assert {kind for kind, _, _ in server.listed} == {*KINDS, *CHILD_KINDS}
        assert {kind for kind, _, selector in server.listed if selector == SELECTOR} == set(CHILD_KINDS)
        assert len(informers.liveness) == len((*KINDS, *CHILD_KINDS))
        assert state.objects.get(ITEM) is not None
        while queue.backlog.take(0.0) is not None:
            pass
        event = {"type": "DELETED", "object": chat(11)}
        await until(lambda: "inferenceservices" in server.lines)
        server.lines["inferenceservices"].put_nowait(orjson.dumps(event) + b"\n")
        await until(lambda: state.objects.get(ITEM) is None)


async def test_one_relist_after_a_fault_repairs_what_was_missed() -> None:
    server = Server(ManualClock())
    server.objects[INFERENCE_SERVICE] = [chat(5)]
    async with following(server) as (state, _, queue):
        await until(lambda: state.complete and "inferenceservices" in server.lines)
        while (item := queue.backlog.take(0.0)) is not None:
            queue.done(item)
        server.objects[INFERENCE_SERVICE] = [chat(12, generation=2)]
        server.lines["inferenceservices"].put_nowait(b"no event\n")
        await until(lambda: queue.backlog.waits(server.clock.monotonic(), Priority.EDIT))
        found = state.objects.get(ITEM)
        assert found is not None
        assert found["metadata"]["generation"] == 2


async def test_in_an_install_for_some_namespaces_children_are_also_watched_in_its_own() -> None:
    server = Server(ManualClock())
    async with following(server, "team") as (state, _, _):
        await until(lambda: state.complete)
    places = {(kind, namespace) for kind, namespace, _ in server.listed}
    assert {namespace for kind, namespace in places if kind in CHILD_KINDS} == {"team", "home"}
    assert {namespace for kind, namespace in places if kind == INFERENCE_SERVICE} == {"team"}
    assert {namespace for kind, namespace in places if kind == ACCELERATOR_PROFILE} == {""}


@pytest.mark.parametrize("watched", [(), ("team",)])
async def test_only_an_install_for_some_namespaces_does_without_accelerator_profiles(watched: tuple[str, ...]) -> None:
    server = Server(ManualClock())
    server.refused = {ACCELERATOR_PROFILE}
    async with following(server, *watched) as (state, informers, _):
        await until(lambda: state.missing in ([], [ACCELERATOR_PROFILE]) and ACCELERATOR_PROFILE in state.forbidden)
        assert state.complete is bool(watched)
        assert any(one.name == ACCELERATOR_PROFILE for one in informers.liveness) is not bool(watched)
        server.refused = set()
        await until(lambda: state.complete and not state.unreadable and not state.forbidden)


async def test_a_refused_watch_of_an_object_kind_keeps_no_service_from_its_pass() -> None:
    server = Server(ManualClock())
    server.refused = {"Tenant"}
    async with following(server) as (state, _, _):
        await until(lambda: state.missing == ["Tenant"] and "Tenant" in state.forbidden)
        assert state.children_forbidden == ""
