"""The frame of `python -m benchmarks.<area>`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from benchmarks import harness
from benchmarks.harness import Bar, Measured, Row, document, median_row, report_parts, report_section

from paceline_core.clock import SystemClock


@pytest.mark.parametrize(
    ("bar", "value", "holds"),
    [
        (Bar(20), 20, True),
        (Bar(20), 20.1, False),
        (Bar(0.9, at_least=True), 0.9, True),
        (Bar(1, at_least=True), 0, False),
    ],
)
def test_a_bar_is_a_limit_from_above_or_below(bar: Bar, value: float, holds: bool) -> None:
    assert Row("x", value, "s", bar=bar).passed is holds


def test_a_row_without_a_bar_neither_passes_nor_fails() -> None:
    assert Row("x", 1, "s").passed is None


def test_a_ratio_is_the_value_over_its_peer() -> None:
    assert Row("x", 3, "s", peer=2).ratio == 1.5
    assert Row("x", 3, "s").ratio is None
    assert Row("x", 3, "s", peer=0).ratio is None


@pytest.mark.parametrize(("values", "median"), [([3, 1, 2], 2), ([4, 1, 2, 3], 2.5), ([7], 7)])
def test_repetitions_become_a_median_and_a_spread(values: list[float], median: float) -> None:
    row = median_row("x", values, "s")
    assert (row.value, row.spread) == (median, max(values) - min(values))


def test_a_result_names_machine_versions_date_and_bars() -> None:
    data = document("local", [Row("ttft", 0.2, "s", bar=Bar(0.3))], "2026-01-01T00:00:00Z", quick=True)
    data = json.loads(json.dumps(data))
    assert (data["v"], data["area"], data["date"], data["quick"]) == (1, "local", "2026-01-01T00:00:00Z", True)
    assert data["machine"]["cores"] >= 1
    assert "python" in data["versions"]
    row = data["rows"][0]
    assert {name: row[name] for name in ("value", "unit", "bar", "passed", "peer", "ratio")} == {
        "value": 0.2, "unit": "s", "bar": "≤ 0.3", "passed": True, "peer": None, "ratio": None,
    }  # fmt: skip


def test_each_part_is_written_as_soon_as_it_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    written = tmp_path / "some.json"

    def parts() -> Iterator[Measured]:
        yield [Row("a", 1, "s")], {"parts": 1}
        assert [row["name"] for row in json.loads(written.read_text())["rows"]] == ["a"]
        yield [Row("b", 2, "s", bar=Bar(1))], {"parts": 2}

    with pytest.raises(SystemExit) as ended:
        report_parts("some", parts(), SystemClock())
    assert ended.value.code == 1
    data = json.loads(written.read_text())
    assert ([row["name"] for row in data["rows"]], data["details"]) == (["a", "b"], {"parts": 2})


def test_a_section_and_the_whole_area_keep_each_others_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "RESULTS", tmp_path)
    written = tmp_path / "some.json"

    def whole(value: float) -> None:
        with pytest.raises(SystemExit):
            report_parts("some", iter([([Row("a", value, "s")], {})]), SystemClock())

    whole(1)
    with pytest.raises(SystemExit) as ended:
        report_section("some", "apart", lambda: ([Row("b", 2, "s", bar=Bar(1))], {"found": 2}), SystemClock())
    assert ended.value.code == 1
    whole(3)
    data = json.loads(written.read_text())
    assert [row["value"] for row in data["rows"]] == [3]
    assert (data["apart"]["rows"][0]["value"], data["apart"]["details"]) == (2, {"found": 2})
