"""Pages move as if one copy were made after another, and who needs a page waits for it and for nothing else."""

from pathlib import Path
from random import Random

import pytest
import torch
from tests.engine.gpu_lines import Lines
from tests.engine.waiting_for import until
from tests.kernels.conftest import CUDA

from paceline_planner.hardware import Dtype
from paceline_planner.shapes import ModelShape
from paceline_workers.engine.backends.gpu.cache import GpuCache, page_bytes
from paceline_workers.engine.backends.gpu.device import Device, opened
from paceline_workers.engine.kv_cache.offload import Copy, CopyKind, number_of
from paceline_workers.engine.page_files import PageFiles

pytestmark = pytest.mark.kernels
PAGES, SLOTS = 5, 4
OUT, IN, ACROSS = CopyKind.OUT, CopyKind.IN, CopyKind.DEVICE


def shape(kv: Dtype = Dtype.FP32) -> ModelShape:
    return ModelShape("small", 2, 32, 2, 1, 16, 32, 64, 128, weight_dtype=Dtype.FP32, kv_dtype=kv)


def cache(kv: Dtype = Dtype.FP32, files: PageFiles | None = None, device: Device | None = None) -> GpuCache:
    """Each page full of its own number, and narrow ones' scales of a tenth of it."""
    device = device or opened(torch.device("cuda" if CUDA else "cpu"))
    made = GpuCache(shape(kv), PAGES, 16, SLOTS, files, device=device)
    for page in range(PAGES):
        made.data[:, page] = page + 1
        if made.scales is not None:
            made.scales[:, page] = (page + 1) / 10
    return made


def content(made: GpuCache) -> list[float]:
    """What each page is full of; the scales, where there are some, must be of the same page."""
    found = []
    for page in range(PAGES):
        (value,) = set(made.data[:, page].float().flatten().tolist())
        if made.scales is not None:
            assert list(set(made.scales[:, page].flatten().tolist())) == pytest.approx([value / 10])
        found.append(value)
    return found


def after(copies: list[Copy]) -> list[float]:
    """The same, one copy after another."""
    pages, slots = [float(page + 1) for page in range(PAGES)], [0.0] * SLOTS
    for copy in copies:
        source = slots if copy.kind is IN else pages
        target = slots if copy.kind is OUT else pages
        target[copy.target] = source[copy.source]
    return pages


def some(chance: Random, count: int) -> list[Copy]:
    """Copies that depend on each other in all ways; slots are read only when they hold something."""
    copies: list[Copy] = []
    known: list[int] = []
    for _ in range(count):
        kind = chance.choice([OUT, OUT, IN, ACROSS]) if known else chance.choice([OUT, ACROSS])
        source = chance.choice(known) if kind is IN else chance.randrange(PAGES)
        target = chance.randrange(SLOTS if kind is OUT else PAGES)
        if kind is OUT:
            known.append(target)
        copies.append(Copy(kind, source, target))
    return copies


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kv", [Dtype.FP32, Dtype.INT8])
def test_copies_are_made_as_if_one_after_another(seed: int, kv: Dtype) -> None:
    copies, made = some(Random(seed), 14), cache(kv)
    made.copy(copies[:6])
    made.copy(copies[6:])
    made.hold([list(range(PAGES))])
    assert content(made) == after(copies)


def test_a_page_and_its_scales_go_to_a_file_and_come_back(tmp_path: Path) -> None:
    size = page_bytes(shape(Dtype.INT8), 16)
    files = PageFiles.open(tmp_path, b"kind", size, 4)
    assert files is not None
    made, name = cache(Dtype.INT8, files), bytes(range(16))
    made.copy([Copy(OUT, 2, 1), Copy(CopyKind.SAVE, 1, number_of(name)), Copy(OUT, 0, 1)])
    files.close()
    again = PageFiles.open(tmp_path, b"kind", size, 4)
    assert again is not None
    other = cache(Dtype.INT8, again)
    assert again.fetch([name]) == {name}
    until(again.arrived, 20)
    other.copy([Copy(CopyKind.LOAD, number_of(name), 3), Copy(IN, 3, 0), Copy(CopyKind.ERASE, number_of(name), 0)])
    other.hold([[0]])
    assert content(other) == [3.0, 2.0, 3.0, 4.0, 5.0]
    again.close()
    assert not list(tmp_path.rglob(name.hex()))


def test_a_page_counts_its_scales() -> None:
    assert page_bytes(shape(), 16) == 2 * 2 * 16 * 16 * 4
    assert page_bytes(shape(Dtype.INT8), 16) == 2 * 2 * 16 * (16 + 4)


def told(*steps: list[Copy]) -> list[str]:
    """Who waits for whom, of copies of one step after another."""
    lines = Lines()
    made = cache(device=lines)
    for copies in steps:
        made.copy(copies)
    return lines.log


def test_a_step_waits_for_the_pages_in_its_tables_that_are_on_their_way_and_for_no_others() -> None:
    lines = Lines()
    made = cache(device=lines)
    made.copy([Copy(IN, 0, 3)])
    made.copy([Copy(IN, 1, 4)])
    assert lines.log == ["back waits for compute1", "back waits for compute4"]
    made.hold([[0, 1], [2]])
    assert len(lines.log) == 2
    made.hold([[0], [1, 3]])
    made.hold([[3]])
    made.hold([[4, 0]])
    assert lines.log[2:] == ["compute waits for back3", "compute waits for back6"]


def test_the_last_page_that_a_step_waits_for_stands_for_those_before_it() -> None:
    lines = Lines()
    made = cache(device=lines)
    made.copy([Copy(IN, 0, 3)])
    made.copy([Copy(IN, 1, 4)])
    made.hold([[3, 4]])
    made.hold([[3]])
    assert lines.log[2:] == ["compute waits for back6"]


def test_what_leaves_is_gathered_in_the_compute_line_so_that_its_page_may_be_overwritten_at_once() -> None:
    lines = Lines()
    made = cache(device=lines)
    made.copy([Copy(OUT, 2, 0)])
    made.hold([[2]])
    assert lines.log == ["out waits for compute1"]


def test_a_second_group_is_gathered_when_the_first_has_left_the_memory_that_both_pass_through() -> None:
    assert told([Copy(OUT, 2, 0)], [Copy(OUT, 3, 1)])[1:] == ["compute waits for out2", "out waits for compute3"]


def test_a_page_on_its_way_back_is_waited_for_before_it_leaves_again() -> None:
    log = told([Copy(IN, 0, 3)], [Copy(OUT, 3, 1)])
    assert log == ["back waits for compute1", "compute waits for back3", "out waits for compute4"]


def test_pages_that_leave_and_pages_that_come_back_do_not_wait_for_each_other() -> None:
    log = told([Copy(IN, 0, 3), Copy(OUT, 2, 1)], [Copy(IN, 2, 4)])
    assert log == ["out waits for compute1", "back waits for compute3", "back waits for compute6"]


def test_a_slot_is_read_when_it_has_been_written() -> None:
    log = told([Copy(OUT, 2, 0), Copy(OUT, 4, 1)], [Copy(IN, 1, 3), Copy(IN, 0, 4)])
    assert log[1:] == ["back waits for out2", "back waits for compute3"]


def test_a_slot_is_written_when_it_has_been_read_and_not_only_when_that_page_is_in_its_place() -> None:
    log = told([Copy(IN, 0, 3)], [Copy(OUT, 2, 0)], [Copy(OUT, 1, 0)])
    assert log[1:3] == ["out waits for compute4", "out waits for back2"]
    assert log[3:] == ["compute waits for out5", "out waits for compute6"]


def test_a_file_waits_for_the_copies_of_its_own_slot_that_it_would_meet(tmp_path: Path) -> None:
    lines = Lines()
    files = PageFiles.open(tmp_path, b"kind", page_bytes(shape(), 16), 4)
    assert files is not None
    made = cache(files=files, device=lines)
    made.copy([Copy(OUT, 2, 0)])
    made.copy([Copy(OUT, 3, 1), Copy(IN, 0, 4)])
    begin = len(lines.log)
    made.copy([Copy(CopyKind.SAVE, 0, 7), Copy(CopyKind.SAVE, 2, 8), Copy(CopyKind.SAVE, 0, 9)])
    assert lines.log[begin:] == ["host waits for out2"]
    files.close()


def test_what_was_read_of_a_file_waits_for_who_still_reads_or_writes_its_slot(tmp_path: Path) -> None:
    lines, name = Lines(), bytes(range(16))
    files = PageFiles.open(tmp_path, b"kind", page_bytes(shape(), 16), 4)
    assert files is not None
    made = cache(files=files, device=lines)
    made.copy([Copy(OUT, 2, 0), Copy(CopyKind.SAVE, 0, number_of(name)), Copy(OUT, 1, 0), Copy(IN, 0, 3)])
    until(lambda: list(tmp_path.rglob(name.hex())), 20)
    assert files.fetch([name]) == {name}
    until(files.arrived, 20)
    begin = len(lines.log)
    made.copy([Copy(CopyKind.LOAD, number_of(name), 0)])
    assert lines.log[begin:] == ["host waits for out4", "host waits for back6"]
    files.close()
