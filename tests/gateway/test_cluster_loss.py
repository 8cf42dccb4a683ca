"""The API server is gone, or refuses: what is known goes on, and the gateway says what it misses."""

import asyncio
import json
import logging
from decimal import Decimal

import pytest
from tests.gateway import manifests
from tests.gateway.cluster_double import ClusterDouble
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, STREAM, Stand, until

from paceline_core.kube import Listed, Namespaces, Upserted, WatchLost
from paceline_core.process import cancel
from paceline_core.telemetry import Metrics
from paceline_gateway.routing.config_snapshot import NOTHING, ConfigSnapshot
from paceline_gateway.services.cluster_watch import WORKERS, ClusterWatcher


@pytest.mark.real
async def test_requests_go_on_while_every_watch_is_lost(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    await stand.ready()
    for _ in range(50):
        stand.cluster.lose("the API server is gone")
    await until(lambda: _current(stand, 0.0))
    for body in (CHAT, STREAM) * 5:
        assert (await stand.client.post("/v1/chat/completions", json=body)).status_code == 200
    assert (await stand.admin.get("/readyz")).status_code == 200


async def _current(stand: Stand, wanted: float) -> bool:
    kinds = ("InferenceService", "InferenceRoute", "Tenant", "Secret", WORKERS)
    return {await stand.metric("paceline_gateway_watch_synced", kind=kind) for kind in kinds} == {wanted}


@pytest.mark.real
async def test_the_next_list_replaces_what_went_on(stand: Stand, make_worker: MakeWorker) -> None:
    stand.work(await make_worker())
    await stand.ready()
    stand.cluster.lose()
    await until(lambda: _current(stand, 0.0))
    for board in stand.cluster.boards.values():
        board.tell(Listed(tuple(board.items.values())))
    stand.cluster.endpoints.tell(Listed(tuple(stand.cluster.endpoints.items.values())))
    await until(lambda: _current(stand, 1.0))
    stand.cluster.board("InferenceService").tell(Listed(()))
    response = await _until_unknown(stand)
    assert response["error"]["code"] == "model_not_found"


async def _until_unknown(stand: Stand) -> dict[str, dict[str, str]]:
    async def unknown() -> bool:
        return (await stand.client.post("/v1/chat/completions", json=CHAT)).status_code == 404

    await until(unknown)
    found: dict[str, dict[str, str]] = json.loads((await stand.client.post("/v1/chat/completions", json=CHAT)).text)
    return found


class Picture:
    """A watcher over a cluster in memory, and the last snapshot it made."""

    def __init__(self) -> None:
        self.cluster = ClusterDouble()
        self.directory: ConfigSnapshot | None = None
        self.watcher = ClusterWatcher(
            self.cluster,
            Namespaces(manifests.NAMESPACE),
            self._take,
            lambda _service, _endpoints: None,
            Metrics("gateway"),
        )

    def _take(self, directory: ConfigSnapshot) -> None:
        self.directory = directory


async def test_a_right_that_is_missing_is_named_until_it_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    snapshot = Picture()
    board = snapshot.cluster.board("Secret")
    board.refusal = WatchLost('secrets is forbidden: User "gateway" cannot list resource "secrets"')
    with caplog.at_level(logging.INFO):
        snapshot.watcher.start()
        await until(lambda: snapshot.watcher.unlisted.startswith("Secret is not listed yet: secrets is forbidden"))
        for _ in range(20):
            board.tell(board.refusal)
        await asyncio.sleep(0)
        board.tell(Listed(()))
        await until(lambda: snapshot.watcher.unlisted == "")
    told = [record for record in caplog.records if "the watch of Secret" in record.getMessage()]
    assert [record.levelno for record in told] == [logging.WARNING, logging.INFO]
    await snapshot.watcher.close()


async def test_no_snapshot_comes_before_everything_is_listed() -> None:
    snapshot = Picture()
    board = snapshot.cluster.board("Secret")
    board.refusal = WatchLost("the API server hangs")
    snapshot.cluster.put(manifests.tenant())
    snapshot.watcher.start()
    await until(lambda: snapshot.watcher.unlisted.count("is not listed yet") == 1)
    snapshot.cluster.put(manifests.service())
    await asyncio.sleep(0)
    assert snapshot.directory is None
    board.tell(Listed(()))
    await until(lambda: snapshot.directory is not None and "default/chat" in snapshot.directory.services)
    await snapshot.watcher.close()


@pytest.mark.real
async def test_a_gateway_that_knows_no_keys_yet_asks_to_come_again(stand: Stand) -> None:
    known = stand.process.registry.snapshot
    stand.process.registry.on_snapshot(NOTHING)
    response = await stand.client.post("/v1/chat/completions", json=CHAT)
    assert (response.status_code, response.json()["error"]["code"]) == (503, "no_capacity")
    assert response.headers["retry-after"] == "1"
    assert response.headers["x-should-retry"] == "true"
    assert (await stand.client.get("/v1/models")).status_code == 503
    assert (await stand.client.get("/health")).status_code == 200
    stand.process.registry.on_snapshot(known)
    assert (await stand.client.get("/v1/models")).status_code == 200


def test_before_the_first_lists_every_kind_is_missing() -> None:
    assert Picture().watcher.unlisted.count("is not listed yet") == 6


async def test_a_status_alone_makes_no_new_snapshot_and_tenants_are_published_before_it() -> None:
    snapshot, told = Picture(), list[tuple[object, ConfigSnapshot | None]]()
    snapshot.watcher.on_tenants = lambda event: told.append((event, snapshot.directory))
    tenant = manifests.tenant()
    snapshot.cluster.put(tenant)
    snapshot.watcher.start()
    await until(lambda: snapshot.watcher.unlisted == "")
    before = snapshot.directory
    usage = {"month": "2026-11", "gateways": [{"id": "other", "requests": 3}]}
    snapshot.cluster.put({**tenant, "status": {"usage": usage}})
    await until(lambda: isinstance(told[-1][0], Upserted))
    assert snapshot.directory is before
    snapshot.cluster.put(manifests.tenant(limits={"monthly": {"tokens": 5}}))
    await until(lambda: snapshot.directory is not before)
    assert len(told) == 3
    assert told[-1][1] is before
    await snapshot.watcher.close()


async def test_a_profile_replaces_the_built_in_accelerator_of_its_name() -> None:
    snapshot = Picture()
    spec = {"memory": "80G", "bandwidth": "3350G", "teraflops": {"bf16": 989}, "dollarsPerHour": "9.99"}
    metadata = {"name": "h100"}
    snapshot.cluster.put(
        {"apiVersion": manifests.API, "kind": "AcceleratorProfile", "metadata": metadata, "spec": spec}
    )
    snapshot.watcher.start()
    await until(lambda: snapshot.watcher.unlisted == "")
    assert snapshot.directory is not None
    assert snapshot.directory.accelerators["h100"].price == Decimal("9.99")
    assert snapshot.directory.accelerators["l4"].price == Decimal("0.80")
    await snapshot.watcher.close()


async def test_who_stops_waiting_for_the_watches_does_not_stop_them() -> None:
    """A gateway that drains waits no longer, and still has to hear of workers and of its own statuses."""
    snapshot = Picture()
    snapshot.watcher.start()
    await until(lambda: snapshot.watcher.unlisted == "")
    waiting = asyncio.create_task(snapshot.watcher.wait())
    await asyncio.sleep(0)
    await cancel(waiting)
    snapshot.cluster.put(manifests.tenant("late"))
    await until(lambda: snapshot.directory is not None and "late" in snapshot.directory.tenants)
    await snapshot.watcher.close()
