"""The page pool: references, the order of reuse, sharing by content."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_workers.engine.kv_cache.page_pool import PagePool
from paceline_workers.engine.kv_cache.prefix_keys import chain, extend, pack, root


def digests(*names: str) -> list[bytes]:
    return [name.encode() for name in names]


def test_a_new_pool_is_all_free() -> None:
    pool = PagePool(3)
    assert (pool.free, pool.cached, pool.held, pool.available) == (3, 0, 0, 3)
    pool.check([])


def test_a_pool_without_pages_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one page"):
        PagePool(0)


def test_taking_more_than_is_available_is_refused_and_takes_nothing() -> None:
    pool = PagePool(3)
    with pytest.raises(ValueError, match="4 pages wanted, 3 available"):
        pool.take(4)
    assert pool.free == 3


def test_releasing_a_page_twice_is_refused() -> None:
    pool = PagePool(2)
    pages = pool.take(1)
    pool.release(pages)
    with pytest.raises(ValueError, match="not held"):
        pool.release(pages)


def test_a_released_page_without_a_name_is_the_next_one_taken() -> None:
    pool = PagePool(4)
    pages = pool.take(2)
    pool.release(pages[1:])
    assert pool.take(1) == pages[1:]


def test_a_named_page_stays_findable_after_its_release() -> None:
    pool = PagePool(4)
    (page,) = pool.take(1)
    assert pool.publish(page, b"a") == page
    pool.release([page])
    assert pool.find(digests("a", "b")) == [page]
    assert (pool.free, pool.cached) == (3, 1)


def test_unnamed_pages_are_taken_before_any_prefix_is_evicted() -> None:
    pool = PagePool(3)
    named, plain = pool.take(2)
    pool.publish(named, b"a")
    pool.release([named, plain])
    pool.take(2)
    assert pool.find(digests("a")) == [named]
    assert pool.evicted == 0


def test_the_least_recently_used_prefix_is_evicted_first_and_tails_before_heads() -> None:
    pool = PagePool(4)
    old, young = pool.take(2), pool.take(2)
    for table, names in ((old, "ab"), (young, "cd")):
        for page, name in zip(table, names, strict=True):
            pool.publish(page, name.encode())
        pool.release(table)
    pool.take(1)
    assert pool.find(digests("a", "b")) == old[:1]
    pool.take(1)
    assert pool.find(digests("a")) == []
    assert pool.find(digests("c", "d")) == young
    assert pool.evicted == 2


def test_a_hit_moves_a_prefix_out_of_the_way_of_eviction() -> None:
    pool = PagePool(2)
    first, second = pool.take(2)
    pool.publish(first, b"a")
    pool.publish(second, b"b")
    pool.release([first])
    pool.release([second])
    pool.hold(first)
    pool.release([first])
    assert pool.take(1) == [second]


def test_publishing_known_content_shares_the_known_page_and_returns_the_other() -> None:
    pool = PagePool(3)
    first, second = pool.take(2)
    pool.publish(first, b"a")
    assert pool.publish(second, b"a") == first
    pool.check([[first], [first]])
    assert pool.free == 2


def test_the_check_finds_a_table_that_the_pool_does_not_know() -> None:
    pool = PagePool(3)
    with pytest.raises(RuntimeError, match="reference count"):
        pool.check([[0]])


@given(st.lists(st.integers(0, 9), max_size=40), st.lists(st.integers(0, 9), max_size=40), st.integers(1, 5))
def test_digests_agree_exactly_as_far_as_full_pages_do(left: list[int], right: list[int], size: int) -> None:
    sums: tuple[list[bytes], list[bytes]] = ([], [])
    extend(sums[0], "", left, size)
    extend(sums[1], "", right, size)
    same = [left[: end * size] == right[: end * size] for end in range(1, min(map(len, sums)) + 1)]
    assert [a == b for a, b in zip(*sums, strict=False)] == same


@given(st.lists(st.integers(0, 2**31 - 1), min_size=8, max_size=20), st.integers(0, 20))
def test_digests_do_not_depend_on_how_many_calls_made_them(tokens: list[int], cut: int) -> None:
    whole: list[bytes] = []
    parts: list[bytes] = []
    extend(whole, "s", tokens, 4)
    extend(parts, "s", tokens[:cut], 4)
    extend(parts, "s", tokens, 4)
    assert whole == parts


def names(salt: str, unsalted: int, tokens: list[int] | None = None) -> list[bytes]:
    digests: list[bytes] = []
    extend(digests, salt, tokens or list(range(16)), 4, unsalted)
    return digests


def test_pages_of_unsalted_tokens_are_one_for_all_and_no_page_behind_them_is() -> None:
    nobody, one, other = names("", 0), names("a", 9), names("b", 9)
    assert nobody[:2] == one[:2] == other[:2]
    assert not {*nobody[2:]} & {*one[2:]}
    assert not {*one[2:]} & {*other[2:]}
    assert not {*names("a", 0)} & {*names("a", 9)}
    assert names("", 9) == nobody
    assert names("a", 3) == names("a", 0)


def test_pages_are_named_alike_however_they_come() -> None:
    digests: list[bytes] = []
    for end in range(17):
        extend(digests, "a", list(range(end)), 4, 9)
    assert digests == names("a", 9)


def test_digests_differ_between_salts() -> None:
    assert chain(root("a"), pack([1, 2])) != chain(root("b"), pack([1, 2]))
