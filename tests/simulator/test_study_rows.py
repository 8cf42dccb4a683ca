"""Rows survive as lines: what was written is read, what was cut off is dropped, what is damaged is named."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.rows import row

from paceline_core.errors import InvalidInput
from paceline_simulator.study_rows import Percentiles, append_row, read_rows


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    path, rows = tmp_path / "rows.jsonl", [row("slo"), row("static:2", dollars=None)]
    assert read_rows(path) == []
    for one in rows:
        append_row(path, one)
    assert read_rows(path) == rows


def test_a_line_that_was_cut_off_is_removed_and_the_next_row_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, row("slo"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:40])
    assert read_rows(path) == [row("slo")]
    append_row(path, row("kpa"))
    assert read_rows(path) == [row("slo"), row("kpa")]


@pytest.mark.parametrize("line", ["{}", "not JSON", '{"policy": "slo"}'])
def test_a_damaged_line_is_named_with_the_fix(line: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    append_row(path, row("slo"))
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(InvalidInput, match=r"rows\.jsonl:2: is no row of a simulation; remove the line, or .*--out"):
        read_rows(path)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=300))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(values: list[float]) -> None:
    made = Percentiles.of(values)
    for share, value in ((0.5, made.p50), (0.95, made.p95), (0.99, made.p99)):
        assert value in values
        assert sum(other <= value for other in values) >= share * len(values) - 1e-6
        assert sum(other < value for other in values) < share * len(values) + 1e-6


def test_without_values_there_are_no_percentiles() -> None:
    assert Percentiles.of([]) == Percentiles(None, None, None)
