from hypothesis import given
from hypothesis import strategies as st

from paceline_kernels.copy_blocks.independent_batches import independent_batches

Pair = tuple[int, int]
PLACES = 6
LISTS = st.lists(st.tuples(st.integers(0, PLACES - 1), st.integers(0, PLACES - 1)), max_size=12)


def one_by_one(pairs: list[Pair]) -> list[int]:
    """What each place holds in the end, by the place where it was in the beginning."""
    places = list(range(PLACES))
    for source, target in pairs:
        places[target] = places[source]
    return places


def longest_wait(pairs: list[Pair]) -> int:
    """Copies in the longest chain of which each has to wait for the one before."""
    chains: list[int] = []
    for index, (source, target) in enumerate(pairs):
        waits = [
            chains[before]
            for before, (read, written) in enumerate(pairs[:index])
            if written in (source, target) or read == target
        ]
        chains.append(1 + max(waits, default=0))
    return max(chains, default=0)


@given(LISTS)
def test_groups_one_after_another_do_what_the_list_does_in_order(pairs: list[Pair]) -> None:
    places = list(range(PLACES))
    for group in independent_batches(pairs):
        read = [places[source] for source, _ in group]
        for content, (_, target) in zip(read, group, strict=True):
            places[target] = content
    assert places == one_by_one(pairs)


@given(LISTS)
def test_no_copy_of_a_group_writes_what_another_of_it_reads_or_writes(pairs: list[Pair]) -> None:
    for group in independent_batches(pairs):
        sources, targets = {source for source, _ in group}, [target for _, target in group]
        assert len(set(targets)) == len(targets)
        assert sources.isdisjoint(targets)


@given(LISTS)
def test_every_copy_is_made_once_in_as_few_groups_as_their_order_allows(pairs: list[Pair]) -> None:
    moving = [pair for pair in pairs if pair[0] != pair[1]]
    groups = independent_batches(pairs)
    assert sorted(pair for group in groups for pair in group) == sorted(moving)
    assert len(groups) == longest_wait(moving)
    assert all(groups)


def test_forks_of_one_page_are_one_group() -> None:
    assert independent_batches([(0, 1), (0, 2), (3, 4)]) == [[(0, 1), (0, 2), (3, 4)]]


def test_a_page_is_brought_in_after_what_lay_there_was_taken_out() -> None:
    slot_of_old, slot_of_new = 100, 101
    assert independent_batches([(5, slot_of_old), (slot_of_new, 5), (6, 102)]) == [
        [(5, slot_of_old), (6, 102)],
        [(slot_of_new, 5)],
    ]


def test_a_page_is_read_after_it_was_written_and_written_twice_in_order() -> None:
    assert independent_batches([(0, 1), (1, 2), (3, 1), (4, 1)]) == [[(0, 1)], [(1, 2)], [(3, 1)], [(4, 1)]]


def test_a_page_copied_to_itself_is_no_copy() -> None:
    assert independent_batches([(1, 1)]) == []
