"""The work list as arithmetic: every tile once, equal shares, room for two partials."""

import itertools
from collections import Counter
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.kernels import pools
from tests.kernels.conftest import CUDA

from paceline_kernels.paging import AttentionMask, Sequences
from paceline_kernels.work_list.launch import Work, plan_work
from paceline_kernels.work_list.reference import Split, first_tiles, plan, text_tile, visible_tiles

DEVICE = torch.device("cuda" if CUDA else "cpu")
PAGE = 16
FEW = settings(max_examples=15)
"""An example takes the interpreter some 50 ms."""


def planned(
    batch: Sequences, rule: AttentionMask, programs: int, *, kv_heads: int = 2, least: int = 1, queries: int = 1
) -> Work:
    work = Work.empty(len(batch), kv_heads, 1, 16, programs, DEVICE, tile=PAGE, least=least)
    work.entries.fill_(-1)
    plan_work(batch, PAGE, rule, work, queries)
    return work


def contexts(lengths: list[int]) -> Sequences:
    return pools.sequences(lengths, PAGE, sum(-(-length // PAGE) for length in lengths), DEVICE)


def segments(work: Work) -> Iterator[list[tuple[int, int, int, int, int]]]:
    """What each program walks: (sequence, head, first tile, last tile, tiles of the head)."""
    live = work.live.tolist()
    for share, begin, first, *_ in work.entries.tolist():
        walk: list[tuple[int, int, int, int, int]] = []
        segment, tile = begin, first
        while (left := share - sum(last - start + 1 for _, _, start, last, _ in walk)) > 0:
            place, head = divmod(segment, work.kv_heads)
            sequence, _, tiles, _ = live[place]
            walk.append((sequence, head, tile, min(tile + left, tiles) - 1, tiles))
            segment, tile = segment + 1, 0
        yield walk


rules = st.builds(
    AttentionMask,
    scale=st.just(1.0),
    window=st.none() | st.integers(1, 100),
    first=st.integers(0, 40),
)
batches = st.lists(st.integers(0, 200) | st.sampled_from([0, 1, PAGE - 1, PAGE, PAGE + 1]), min_size=1, max_size=12)


@FEW
@given(batches, rules, st.integers(1, 20), st.integers(1, 3), st.integers(1, 4), st.integers(1, 8))
def test_every_tile_in_sight_is_walked_once_in_equal_shares_that_leave_two_partials(
    lengths: list[int], rule: AttentionMask, programs: int, kv_heads: int, least: int, queries: int
) -> None:
    work = planned(contexts(lengths), rule, programs, kv_heads=kv_heads, least=least, queries=queries)
    walked = Counter(
        (sequence, head, tile)
        for walk in segments(work)
        for sequence, head, first, last, _ in walk
        for tile in range(first, last + 1)
    )
    due = {
        (sequence, head, tile)
        for sequence, length in enumerate(lengths)
        for head in range(kv_heads)
        for tile in range(visible_tiles(length, queries, rule, PAGE))
    }
    assert walked == dict.fromkeys(due, 1)
    shares = [count for count in work.entries[:, 0].tolist() if count]
    assert all(share == shares[0] for share in shares[:-1])
    assert all(share <= shares[0] for share in shares)
    for walk in segments(work):
        parts = [first > 0 for _, _, first, last, tiles in walk if first > 0 or last < tiles - 1]
        assert parts in ([], [True], [False], [True, False])  # the end of a head, the beginning of another


@FEW
@given(batches, rules, st.integers(1, 20), st.integers(1, 3), st.integers(1, 4), st.integers(1, 8))
def test_the_kernel_writes_what_the_reference_says(
    lengths: list[int], rule: AttentionMask, programs: int, kv_heads: int, least: int, queries: int
) -> None:
    batch = contexts(lengths)
    work = planned(batch, rule, programs, kv_heads=kv_heads, least=least, queries=queries)
    entries, live = plan(batch, PAGE, rule, Split(kv_heads, programs, PAGE, least), queries)
    busy = entries[:, 0] > 0
    assert torch.equal(work.entries[:, 0].cpu(), entries[:, 0])
    assert torch.equal(work.entries.cpu()[busy], entries[busy])
    assert torch.equal(work.live[: len(live)].cpu(), live)


@given(st.integers(0, 500), st.integers(1, 8), rules)
def test_tiles_in_sight_are_those_that_some_query_sees_a_token_of(
    length: int, queries: int, rule: AttentionMask
) -> None:
    own = range(max(length - queries, 0), length)
    behind = first_tiles(rule, PAGE) * PAGE  # tiles of the head are read whole
    seen = {
        token // PAGE
        for token in range(length)
        if token < behind or rule.window is None or any(token <= place < token + rule.window for place in own)
    }
    count = visible_tiles(length, queries, rule, PAGE)
    read = {text_tile(tile, length, count, rule, PAGE) for tile in range(count)}
    gaps = set(range(min(seen), max(seen) + 1)) - seen if seen and not behind else set()
    assert read == seen | gaps


def test_by_hand_two_heads_of_five_tiles_are_shared_by_four() -> None:
    work = planned(contexts([5 * PAGE]), AttentionMask(scale=1.0), 4)
    assert [list(walk) for walk in segments(work)] == [
        [(0, 0, 0, 2, 5)],
        [(0, 0, 3, 4, 5), (0, 1, 0, 0, 5)],
        [(0, 1, 1, 3, 5)],
        [(0, 1, 4, 4, 5)],
    ]


def test_a_batch_of_empty_places_is_no_work() -> None:
    assert planned(contexts([0, 0, 0]), AttentionMask(scale=1.0), 4).entries[:, 0].tolist() == [0, 0, 0, 0]


def test_few_tiles_keep_programs_idle_rather_than_splitting_below_the_least() -> None:
    work = planned(contexts([3 * PAGE]), AttentionMask(scale=1.0), 8, least=2)
    assert work.entries[:, 0].tolist() == [2, 2, 2, 0, 0, 0, 0, 0]


def test_idle_programs_stand_at_the_first_sequence_whatever_an_earlier_larger_batch_left_there() -> None:
    work = planned(contexts([3 * PAGE]), AttentionMask(scale=1.0), 4, least=2)
    assert work.entries[:, 4].tolist() == [0] * 4


def test_a_long_context_among_short_ones_leaves_no_program_behind() -> None:
    work = planned(contexts([1000 * PAGE, *[PAGE] * 63]), AttentionMask(scale=1.0), 16)
    assert work.entries[:, 0].tolist() == [133] * 15 + [2126 - 15 * 133]


def test_a_thousand_places_and_long_tables_are_planned(device: torch.device) -> None:
    lengths = torch.randint(0, 2**17, (1024,), dtype=torch.int32, device=device)
    table = torch.zeros((1, 2**13), dtype=torch.int32, device=device).expand(1024, -1)
    work = planned(Sequences(table, lengths, torch.zeros_like(lengths)), AttentionMask(scale=1.0), 40, kv_heads=8)
    total = int((-(-lengths // PAGE)).sum()) * 8
    assert int(work.entries[:, 0].sum()) == total
    starts = list(itertools.accumulate(8 * -(-length // PAGE) for length in lengths.tolist()))
    for program, (_, segment, tile, *_, sequence, length, tiles, _) in enumerate(work.entries.tolist()):
        begin = starts[sequence] - 8 * tiles + segment % 8 * tiles + tile
        assert (begin, length) == (program * -(-total // 40), lengths[sequence])


def test_plans_for_other_rules_and_lengths_use_the_same_buffers() -> None:
    work = Work.empty(3, 1, 1, 16, 4, DEVICE, tile=PAGE, least=1)
    plan_work(contexts([90, 90, 90]), PAGE, AttentionMask(scale=1.0), work)
    plan_work(contexts([0, 17]), PAGE, AttentionMask(scale=1.0), work)
    assert work.entries[:, 0].tolist() == [1, 1, 0, 0]


@pytest.mark.parametrize("sequences", [0, 1025])
def test_room_is_for_a_thousand_places(sequences: int) -> None:
    with pytest.raises(ValueError, match=r"sequences: .* between 1 and 1024"):
        Work.empty(sequences, 1, 1, 16, 4, DEVICE)


def test_a_tile_is_as_long_as_some_page() -> None:
    with pytest.raises(ValueError, match="tile: 48"):
        Work.empty(1, 1, 1, 16, 4, DEVICE, tile=48)


def test_more_places_than_room_are_refused() -> None:
    work = Work.empty(1, 1, 1, 16, 4, DEVICE, tile=PAGE)
    with pytest.raises(ValueError, match="sequences: 2 do not fit"):
        plan_work(contexts([1, 1]), PAGE, AttentionMask(scale=1.0), work)
