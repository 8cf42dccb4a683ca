"""How rows are parted among programs."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from paceline_kernels.paged_prefill import Tiles


def test_a_long_chunk_fills_tiles_of_128_rows_with_the_heads_of_a_group() -> None:
    tiles = Tiles.of([100], [1000], "cpu", group=4)
    assert (tiles.rows, tiles.packed) == (128, 4)
    assert tiles.list.tolist() == [[0, 96], [0, 64], [0, 32], [0, 0]]


@pytest.mark.parametrize(("count", "group", "rows"), [(1, 1, 16), (4, 4, 16), (5, 4, 32), (5, 7, 64), (33, 4, 128)])
def test_short_chunks_have_small_tiles(count: int, group: int, rows: int) -> None:
    assert Tiles.of([count], [50], "cpu", group).rows == rows


def test_what_sees_most_comes_first() -> None:
    tiles = Tiles.of([3, 40, 2], [9, 40, 500], "cpu", rows=16)
    assert tiles.list.tolist() == [[2, 0], [1, 32], [1, 16], [0, 0], [1, 0]]


def test_a_group_larger_than_a_tile_is_not_packed() -> None:
    assert Tiles.of([2], [2], "cpu", group=200).packed == 1


def test_no_rows_are_no_tiles() -> None:
    assert Tiles.of([0, 0], [7, 0], "cpu").list.shape == (0, 2)
    assert Tiles.of([], [], "cpu").list.shape == (0, 2)


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(0, 300)), max_size=5), st.sampled_from([1, 2, 3, 7, 8]))
def test_every_token_is_in_one_tile(chunks: list[tuple[int, int]], group: int) -> None:
    counts = [count for count, _ in chunks]
    tiles = Tiles.of(counts, [count + before for count, before in chunks], "cpu", group)
    tokens = tiles.rows // tiles.packed
    covered = [
        (row, token) for row, first in tiles.list.tolist() for token in range(first, min(first + tokens, counts[row]))
    ]
    assert sorted(covered) == [(row, token) for row, count in enumerate(counts) for token in range(count)]
    assert tiles.list.dtype == torch.int32
