"""What a step is told: which row is whose, what pads a bucket, and what is written anew."""

from collections.abc import Iterable

import pytest
import torch
from tests.engine.reference_scheduler import request
from tests.every import cases

from paceline_kernels.paged_prefill import Tiles
from paceline_workers.engine.backends.gpu.device import HostDevice
from paceline_workers.engine.backends.gpu.step_inputs import NO_ROW, Buffers, Graphs, Staged, StepShape, buckets
from paceline_workers.engine.backends.gpu.steps import SPANS, Rows, fill
from paceline_workers.engine.scheduling import Chunk, Request, StepPlan

PAGE = 16
MOST = StepShape.of(64, 8, 8, 8, 64, 10)


@pytest.mark.parametrize(
    ("most", "sizes"),
    [(1, (1,)), (5, (1, 2, 4, 5)), (32, (1, 2, 4, 8, 16, 32)), (100, (1, 2, 4, 8, 16, 32, 64, 96, 100))],
)
def test_buckets_double_and_then_grow_by_a_stride_up_to_the_most(most: int, sizes: tuple[int, ...]) -> None:
    assert buckets(most) == sizes
    graphs = Graphs(HostDevice(), most, 3)
    assert [graphs.form(count).singles for count in sizes] == list(sizes)
    assert graphs.form(max(most - 1, 1)).singles >= most - 1


@cases("group", range(1, 33))
def test_a_warm_up_tries_every_size_of_tile_that_a_chunk_can_ask_for(group: int) -> None:
    def sizes(counts: Iterable[int]) -> set[tuple[int, int]]:
        return {(tiles.rows, tiles.packed) for tiles in (Tiles.of([size], [size], "cpu", group) for size in counts)}

    assert sizes(SPANS) == sizes(range(2, 200))


def known(name: str, length: int, pages: list[int], dropped: int = 0) -> Request:
    entry = request(name, list(range(1, length + 1)))
    entry.pages, entry.dropped = pages, dropped
    return entry


def staged(plan: StepPlan, buffers: Buffers, turn: int = 0) -> tuple[Rows, Staged]:
    rows = Rows.of(plan, Graphs(HostDevice(), 8, 10), 2)
    step = buffers.stage(rows.form, turn)
    fill(step, rows, PAGE, lambda entry: NO_ROW if entry.id == "host" else ord(entry.id[0]))
    return rows, step


def test_single_tokens_fill_a_bucket_whose_other_rows_stand_for_nobody() -> None:
    one, two, three = known("a", 5, [7]), known("b", 40, [2, 9, 4], dropped=1), known("host", 17, [3, 5])
    one.pending = 1
    plan = StepPlan((Chunk(one, 5, 1, True), Chunk(two, 39, 1, True), Chunk(three, 16, 1, True)))
    rows, step = staged(plan, Buffers(HostDevice(), MOST))
    fields = step.fields
    assert rows.form == StepShape.bucket(4, 10)
    assert fields.tokens.tolist() == [0, 40, 17, 0]
    assert fields.positions.tolist() == [5, 39, 16, 0]
    assert fields.slots.tolist() == [7 * PAGE + 5, 9 * PAGE + 7, 5 * PAGE, NO_ROW]
    assert (fields.lengths.tolist(), fields.dropped.tolist()) == ([6, 40, 17, 0], [0, 1, 0, 0])
    assert (fields.sample_slots.tolist(), fields.counts.tolist()) == ([97, 98, NO_ROW, NO_ROW], [6, 40, 17, 0])
    assert fields.drawn.tolist() == [0, 1, 2, 3]
    assert fields.sources.tolist() == [NO_ROW] * 4
    assert fields.table[1, :3].tolist() == [2, 9, 4]
    assert (rows.samples, rows.lacking) == ({one: 0, two: 1, three: 2}, {one: 0})


def test_chunks_of_several_tokens_stand_behind_single_ones_and_only_who_samples_draws() -> None:
    long, single, cut, last = (
        known("l", 40, [6, 1, 8]),
        known("s", 9, [5]),
        known("c", 50, [2, 3, 4, 0]),
        known("x", 3, [9]),
    )
    last.pending = 1
    plan = StepPlan(
        (Chunk(long, 15, 3, False), Chunk(single, 8, 1, True), Chunk(cut, 46, 4, True), Chunk(last, 0, 4, True))
    )
    rows, step = staged(plan, Buffers(HostDevice(), MOST))
    fields, form = step.fields, rows.form
    assert (form.rows, form.singles, form.spans, form.drawn, form.pages) == (12, 1, 3, 3, 16)
    assert fields.tokens.tolist() == [9, 16, 17, 18, 47, 48, 49, 50, 1, 2, 3, 0]
    assert fields.positions.tolist() == [8, 15, 16, 17, 46, 47, 48, 49, 0, 1, 2, 3]
    assert fields.slots[:4].tolist() == [5 * PAGE + 8, 6 * PAGE + 15, PAGE, PAGE + 1]
    assert fields.starts.tolist() == [0, 3, 7, 11]
    assert (fields.lengths[0], fields.lengths[form.first :].tolist()) == (9, [18, 50, 4])
    assert (form.first, fields.table[form.first + 1, :4].tolist()) == (4, [2, 3, 4, 0])
    assert fields.drawn.tolist() == [0, 7, 11]
    assert fields.sample_slots.tolist() == [ord("s"), ord("c"), ord("x")]
    assert (list(rows.samples), rows.lacking) == ([single, cut, last], {last: 11})
    assert set(fields.tiles[:, 0].tolist()) == {0, 1, 2}


def test_samples_come_in_the_plans_order_whatever_the_rows_are() -> None:
    span, single = known("p", 20, [0, 1]), known("s", 9, [5])
    rows, _ = staged(StepPlan((Chunk(span, 0, 20, True), Chunk(single, 8, 1, True))), Buffers(HostDevice(), MOST))
    assert list(rows.samples.items()) == [(span, 1), (single, 0)]


def test_what_a_step_finds_on_the_device_is_what_was_staged() -> None:
    buffers = Buffers(HostDevice(), MOST)
    _, step = staged(StepPlan((Chunk(known("l", 40, [6, 1, 8]), 15, 18, True),)), buffers)
    buffers.send(step)
    found = buffers.inputs(step.form)
    for name in ("tokens", "slots", "drawn", "lengths", "starts", "tiles", "table"):
        assert torch.equal(getattr(found, name), torch.from_numpy(getattr(step.fields, name))), name


def test_a_row_of_the_table_is_written_where_its_pages_differ_from_those_in_the_same_staging_buffer() -> None:
    buffers, entry = Buffers(HostDevice(), MOST), known("a", 30, [3, 4])
    plan = StepPlan((Chunk(entry, 29, 1, True),))
    for turn in (0, 1):
        staged(plan, buffers, turn)[1].fields.table[0, 1] = 77 + turn
    assert [staged(plan, buffers, turn)[1].fields.table[0, 1] for turn in (0, 1)] == [77, 78]
    entry.pages = [3, 5]
    assert [staged(plan, buffers, turn)[1].fields.table[0, 1] for turn in (0, 1)] == [5, 5]


def test_a_step_of_other_sizes_leaves_nothing_that_would_be_taken_as_written() -> None:
    buffers, entry = Buffers(HostDevice(), MOST), known("a", 30, [3, 4])
    plan, other = StepPlan((Chunk(entry, 29, 1, True),)), StepPlan((Chunk(known("b", 60, [1, 2, 5, 6]), 0, 60, True),))
    for step in (plan, other, plan):
        _, last = staged(step, buffers)
    assert last.fields.table[0, :2].tolist() == [3, 4]
