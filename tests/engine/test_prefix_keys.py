"""A gateway's keys: told as cached once their pages are, and as gone when they are evicted."""

import pytest
from tests.engine.reference_scheduler import PAGE, Shadow, request, started

from paceline_workers.engine.kv_cache.prefix_keys import CHANGES, PrefixKeyIndex

LONG = [number % 50 for number in range(5 * PAGE)]


def submit(run: Shadow, name: str, prompt: list[int], keys: list[tuple[str, int]]) -> None:
    entry = request(name, prompt, 1)
    assert run.core.submit(entry) is None
    run.core.memory.note(entry, keys)


def changes(run: Shadow) -> tuple[list[str], list[str]]:
    return run.core.memory.keys.changes()


def test_a_key_is_told_when_the_last_page_that_it_covers_is_full() -> None:
    run = started(8, budget=2 * PAGE)
    submit(run, "a", LONG, [("head", 2 * PAGE + 1), ("tail", 4 * PAGE)])
    assert changes(run) == ([], [])
    run.step()
    assert changes(run) == (["head"], [])
    run.drain()
    assert changes(run) == (["tail"], [])
    assert changes(run) == ([], [])


def test_a_key_is_told_as_gone_when_its_page_is_evicted() -> None:
    run = started(8)
    submit(run, "a", LONG, [("head", PAGE), ("tail", 4 * PAGE)])
    run.drain()
    changes(run)
    submit(run, "b", [7] * 6 * PAGE, [])
    run.drain()
    assert changes(run) == ([], ["tail"])


def test_a_key_of_a_page_that_went_to_host_memory_stays() -> None:
    run = started(8, host=20)
    submit(run, "a", LONG, [("tail", 4 * PAGE)])
    run.drain()
    changes(run)
    for number in (7, 8):
        submit(run, f"b{number}", [number] * 7 * PAGE, [])
        run.drain()
    assert changes(run) == ([], [])
    for number in range(10, 13):
        submit(run, f"c{number}", [number] * 7 * PAGE, [])
        run.drain()
    assert changes(run) == ([], ["tail"])


def test_what_a_failed_step_should_have_saved_is_gone() -> None:
    run = started(8, host=8)
    submit(run, "a", LONG, [("tail", 4 * PAGE)])
    run.drain()
    changes(run)
    submit(run, "b", [7] * (8 * PAGE - 2), [])
    run.launch()
    run.fail()
    run.drain()
    assert changes(run) == ([], ["tail"])


def test_a_key_that_covers_no_full_page_is_never_told() -> None:
    run = started(8)
    submit(run, "a", LONG, [("short", PAGE - 1), ("none", 0)])
    run.drain()
    assert changes(run) == ([], [])


def test_a_key_of_a_cached_page_is_told_at_once() -> None:
    run = started(8)
    submit(run, "a", LONG, [])
    run.drain()
    submit(run, "b", LONG, [("head", PAGE)])
    assert changes(run) == (["head"], [])


@pytest.mark.parametrize("cache", [True, False])
def test_without_a_prefix_cache_no_key_is_told(cache: bool) -> None:
    run = started(8, prefix_cache=cache)
    submit(run, "a", LONG, [("head", PAGE)])
    run.drain()
    assert changes(run)[0] == ["head"] * cache


def test_the_longest_unused_key_goes_first_and_is_told_as_gone() -> None:
    book = PrefixKeyIndex(lambda _: True, limit=2)
    for key in ("a", "b", "a", "c"):
        book.note(key, key.encode())
    assert book.changes() == (["a", "c"], [])
    book.note("d", b"d")
    assert book.changes() == (["d"], ["a"])


def test_a_key_that_moves_to_another_page_is_looked_up_again() -> None:
    there = {b"x"}
    book = PrefixKeyIndex(there.__contains__)
    book.note("key", b"x")
    assert book.changes() == (["key"], [])
    book.note("key", b"y")
    assert book.changes() == ([], ["key"])
    there.add(b"y")
    book.touch(b"x")
    assert book.changes() == ([], [])
    book.touch(b"y")
    assert book.changes() == (["key"], [])


def test_many_changes_are_told_by_and_by() -> None:
    book = PrefixKeyIndex(lambda _: True)
    for number in range(CHANGES + 3):
        book.note(str(number), b"page")
    assert [len(book.changes()[0]) for _ in range(3)] == [CHANGES, 3, 0]
