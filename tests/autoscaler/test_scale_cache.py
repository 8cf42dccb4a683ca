"""The scales between reads: when they may be used, and which differences are edits."""

import pytest

from paceline_autoscaler.scale_cache import READ_S, ScaleCache, existing_replicas, spread
from paceline_core.kube import Endpoint, ObjectKey, Scale

KEY = ObjectKey("default", "chat")
POOLS = ("main", "spot")
THREE = {"main": 3, "spot": 1}


def scales(main: int, spot: int = 1, version: str = "1") -> dict[str, Scale]:
    return {"main": Scale(main, version), "spot": Scale(spot, version)}


@pytest.fixture
def cache() -> ScaleCache:
    made = ScaleCache(KEY)
    made.on_existing(THREE)
    made.on_read(scales(3), 0.0)
    made.on_read(scales(3), 0.0)  # the first one is older, by a part of the minute
    return made


def test_scales_are_used_for_a_minute_and_the_first_ones_for_a_part_of_it(cache: ScaleCache) -> None:
    assert cache.usable(POOLS, READ_S - 1)
    assert not cache.usable(POOLS, READ_S)
    first = ScaleCache(KEY)
    assert not first.usable(POOLS, 0.0)
    first.on_read(scales(3), 0.0)
    assert not first.usable(POOLS, READ_S * (1 - spread(KEY)))


def test_another_pool_is_read(cache: ScaleCache) -> None:
    assert not cache.usable((*POOLS, "big"), 1.0)


def test_replicas_that_newly_contradict_the_scale_cause_one_read_at_once(cache: ScaleCache) -> None:
    reads = 0
    for main in (3, 5, 5, 5, 3, 5, 3, 2, 2, 3):
        cache.on_existing({"main": main, "spot": 1})
        if not cache.usable(POOLS, 1.0):
            cache.on_read(scales(3), 1.0)
            reads += 1
    assert reads == 3


@pytest.mark.parametrize("written", [False, True])
def test_while_they_contradict_it_the_scale_is_read_again_ever_more_seldom(cache: ScaleCache, written: bool) -> None:
    """As after an edit that was made before a pass saw the replicas of our own write."""
    if written:
        cache.on_write("main", Scale(2, "2"))
    existing, reads = 3 if written else 5, []
    for second in range(1, 200):
        cache.on_existing({"main": existing, "spot": 1})
        if not cache.usable(POOLS, second):
            cache.on_read(scales(2 if written else 3), second)
            reads.append(second)
    assert reads == ([5, 15, 35, 75, 135, 195] if written else [1, 6, 16, 36, 76, 136, 196])
    cache.on_existing({"main": 2 if written else 3, "spot": 1})
    assert cache.usable(POOLS, 230.0)


def test_a_read_that_differs_is_an_edit_of_its_pool(cache: ScaleCache) -> None:
    assert cache.on_read(scales(3, version="9"), 60.0) == []
    assert cache.on_read(scales(5), 120.0) == [("main", 3, 5)]
    assert cache.on_read(scales(5), 180.0) == []


def test_what_was_written_is_known_and_a_write_without_an_answer_may_have_been_done(cache: ScaleCache) -> None:
    cache.on_write("main", Scale(4, "2"))
    assert cache.scales["main"] == Scale(4, "2")
    assert cache.on_read(scales(4), 60.0) == []
    cache.on_failed_write("main", 6)
    assert not cache.usable(POOLS, 61.0)
    assert cache.on_read(scales(6), 61.0) == []
    cache.on_failed_write("main", 7)
    assert cache.on_read(scales(9), 62.0) == [("main", 6, 9)]


def test_after_an_error_an_edit_is_still_one_and_after_a_hand_over_it_is_not(cache: ScaleCache) -> None:
    cache.drop()
    assert cache.on_read(scales(5), 60.0) == [("main", 3, 5)]
    cache.forget()
    assert cache.on_read(scales(9), 120.0) == []


def test_only_stable_workers_that_are_not_ordered_to_end_exist() -> None:
    def worker(name: str, pool: str = "main", track: str = "stable", *, terminating: bool = False) -> Endpoint:
        return Endpoint(name, pool, track, "r", "", 8000, ready=False, terminating=terminating)

    rows = [worker("a"), worker("b", terminating=True), worker("c", track="canary"), worker("d", "spot"), worker("e")]
    assert existing_replicas(rows) == {"main": 2, "spot": 1}
