"""What services cost the API server: requests in ten minutes of passes, whatever else is there to do."""

from collections.abc import AsyncIterator

import pytest
from tests.autoscaler.test_cluster_faults import BUSY, THREE_BUSY
from tests.autoscaler.test_controller import Rig

from paceline_autoscaler.service_scaler import REPEAT_S


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    made = Rig()
    yield made
    await made.autoscaler.close()


def requests(rig: Rig) -> dict[str, int]:
    calls = rig.cluster.calls
    return {name: calls[name] for name in ("get_scale", "set_scale", "patch_status", "put_state", "scale_writer")}


async def ten_minutes(rig: Rig, ready: int, arriving: int = 0) -> dict[str, int]:
    """The requests of ten minutes of passes every five seconds while the measured TTFT wavers; without the lease."""
    before = requests(rig)
    for number in range(120):
        rig.source.ttft_s = 0.2 + number % 7 / 100
        rig.clock.advance(4)
        await rig.seconds(1, ready=ready, requests=arriving)
    return {name: count - before[name] for name, count in requests(rig).items()}


async def test_a_quiet_service_costs_a_read_a_minute_and_no_write_in_ten_minutes(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(40, ready=1)
    events = len(rig.cluster.events)
    made = await ten_minutes(rig, ready=1)
    assert made.pop("get_scale") <= 11
    assert set(made.values()) == {0}
    assert len(rig.cluster.events) == events


async def test_a_steady_service_under_load_refreshes_its_numbers_once_a_minute(rig: Rig) -> None:
    await rig.start(ready=3)
    await rig.seconds(40, ready=3, requests=THREE_BUSY)
    made = await ten_minutes(rig, ready=3, arriving=5 * THREE_BUSY)
    assert made["get_scale"] <= 11
    assert 8 <= made["patch_status"] <= 10
    assert 1 <= made["put_state"] <= 2  # the history
    assert made["set_scale"] == 0


async def test_a_status_that_someone_removed_is_repeated_within_half_an_hour(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(40, ready=1)
    before = requests(rig)
    rig.clock.advance(REPEAT_S)
    await rig.seconds(10, ready=1)
    made = {name: count - before[name] for name, count in requests(rig).items()}
    assert made["patch_status"] >= 1
    assert made["put_state"] == 1


async def test_the_last_numbers_of_a_service_that_became_quiet_are_taken_back_once(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(60, ready=1, requests=5)
    assert rig.cluster.statuses[-1][1]["scaling"]["promise"] == "ttft p95 200ms/500ms"
    rig.source.quiet = True
    made = await ten_minutes(rig, ready=1)
    assert rig.cluster.statuses[-1][1]["scaling"]["promise"] == "ttft p95 -/500ms"
    assert made["patch_status"] == 1


async def test_a_scale_up_reads_before_it_writes_and_once_for_its_new_workers(rig: Rig) -> None:
    await rig.start()
    await rig.seconds(2, ready=1)
    before = requests(rig)
    await rig.seconds(6, ready=1, requests=8 * BUSY)
    written = requests(rig)["set_scale"] - before["set_scale"]
    assert written >= 1
    assert requests(rig)["get_scale"] - before["get_scale"] == written
    ordered = rig.cluster.written[-1][1]
    await rig.see(ordered)
    await rig.seconds(20, ready=ordered, requests=BUSY)
    assert requests(rig)["get_scale"] - before["get_scale"] <= written + 1
