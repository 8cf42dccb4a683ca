"""What is believed to be cached where: the worker's word, a hope for a while, and never more than its bytes."""

import tracemalloc

from hypothesis import given
from hypothesis import strategies as st

from paceline_gateway.routing.prefix import ASSUMED_S, ENTRY_BYTES, PrefixIndex

NOW = 10.0
PLENTY = 1 << 20


def chain(name: int, blocks: int) -> tuple[str, ...]:
    """The keys of a prompt of its own."""
    return tuple(f"{name:08x}{block:08x}" for block in range(blocks))


def test_a_worker_has_what_it_reported_and_others_have_nothing() -> None:
    index, keys = PrefixIndex(PLENTY), chain(1, 5)
    index.reported("a", keys[:3], ())
    assert [index.cached(name, keys, NOW) for name in ("a", "b")] == [3, 0]
    assert index.cached("a", chain(2, 5), NOW) == 0
    assert index.cached("a", (), NOW) == 0


def test_what_was_evicted_is_not_cached_any_more() -> None:
    index, keys = PrefixIndex(PLENTY), chain(1, 5)
    index.reported("a", keys, ())
    index.reported("a", (), keys[2:])
    assert index.cached("a", keys, NOW) == 2


def test_a_dispatched_prompt_is_assumed_cached_until_a_timeout_or_a_report() -> None:
    index, keys = PrefixIndex(PLENTY), chain(1, 4)
    index.note("a", keys, NOW)
    assert index.cached("a", keys, NOW + ASSUMED_S / 2) == 4
    assert index.cached("a", keys, NOW + ASSUMED_S) == 0
    index.note("a", keys, NOW)
    index.reported("a", keys[:2], ())
    assert index.cached("a", keys, NOW + 2 * ASSUMED_S) == 2
    index.note("a", keys, NOW)
    index.reported("a", (), keys)
    assert index.cached("a", keys, NOW) == 0


def test_an_assumed_prefix_does_not_replace_a_reported_one() -> None:
    index, keys = PrefixIndex(PLENTY), chain(1, 4)
    index.reported("a", keys, ())
    index.note("a", keys, NOW)
    assert index.cached("a", keys, NOW + 2 * ASSUMED_S) == 4


def test_a_worker_that_is_gone_has_nothing() -> None:
    index, keys = PrefixIndex(PLENTY), chain(1, 4)
    for name in ("a", "b"):
        index.reported(name, keys, ())
    index.gone("a")
    assert [index.cached(name, keys, NOW) for name in ("a", "b")] == [0, 4]
    assert len(index) == 4


def test_the_longest_unused_prompt_goes_first_and_its_end_before_its_beginning() -> None:
    index = PrefixIndex(ENTRY_BYTES * 10)
    first, second, third = chain(1, 4), chain(2, 4), chain(3, 4)
    index.reported("a", first, ())
    index.reported("a", second, ())
    index.note("a", first, NOW)
    index.reported("a", third, ())
    assert [index.cached("a", keys, NOW) for keys in (first, second, third)] == [4, 2, 4]


def test_workers_have_equal_shares_of_the_bytes() -> None:
    index = PrefixIndex(ENTRY_BYTES * 8)
    index.reported("a", chain(1, 8), ())
    assert len(index) == 8
    index.reported("b", chain(1, 8), ())
    assert [index.cached(name, chain(1, 8), NOW) for name in ("a", "b")] == [4, 4]


def test_memory_stays_below_the_cap_even_while_it_grows() -> None:
    entries = 10_923  # just above a size at which dictionaries grow
    tracemalloc.start()
    try:
        index = PrefixIndex(entries * ENTRY_BYTES)
        for number in range(3 * entries // 64):
            index.reported("a", chain(number, 64), ())
            index.note("a", chain(number + entries, 1), float(number))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(index) == entries
    assert peak <= entries * ENTRY_BYTES


KEYS = st.tuples(st.integers(0, 3), st.integers(1, 6)).map(lambda pair: chain(*pair))
WORKERS = st.sampled_from("abc")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("note"), WORKERS, KEYS),
        st.tuples(st.just("added"), WORKERS, KEYS),
        st.tuples(st.just("evicted"), WORKERS, KEYS),
        st.tuples(st.just("gone"), WORKERS, KEYS),
    ),
    max_size=60,
)


@given(STEPS, st.integers(3, 40))
def test_whatever_happens_the_cap_holds_and_nothing_is_believed_that_was_never_said(
    steps: list[tuple[str, str, tuple[str, ...]]], entries: int
) -> None:
    index = PrefixIndex(entries * ENTRY_BYTES)
    said: dict[str, set[str]] = {name: set() for name in "abc"}
    for kind, worker, keys in steps:
        match kind:
            case "note":
                index.note(worker, keys, NOW)
                said[worker].update(keys)
            case "added":
                index.reported(worker, keys, ())
                said[worker].update(keys)
            case "evicted":
                index.reported(worker, (), keys)
                said[worker].difference_update(keys)
            case _:
                index.gone(worker)
                said[worker].clear()
        assert index.bytes <= entries * ENTRY_BYTES
        found = index.cached(worker, keys, NOW)
        assert found == 0 or keys[found - 1] in said[worker]
