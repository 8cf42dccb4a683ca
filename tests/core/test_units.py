import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.units import brief, counted, dollars, duration, quantity, seconds


@given(st.integers(min_value=0, max_value=10**10))
def test_a_duration_reads_back_as_it_was_written(milliseconds: int) -> None:
    assert round(seconds(duration(milliseconds / 1000)) * 1000) == milliseconds


@pytest.mark.parametrize(("text", "expected"), [("500ms", 0.5), ("1m30s", 90), ("1h", 3600), ("28d", 28 * 86400)])
def test_durations_are_seconds(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0.42, "420ms"), (2.3, "2.3s"), (2.0, "2s"), (59.96, "60s"), (90.4, "1m30s"), (0.0, "0s"), (1e-4, "<1ms")],
)
def test_a_time_for_people_is_short(value: float, shown: str) -> None:
    assert brief(value) == shown


@pytest.mark.parametrize("text", ["", "5", "s", "1.5s", "-1s", "1 s", "5m garbage"])
def test_a_bad_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        seconds(text)


@pytest.mark.parametrize(("text", "expected"), [("16Gi", 16 * 2**30), ("1k", 1000), ("1.5Mi", 3 * 2**19), ("7", 7)])
def test_quantities_are_bytes(text: str, expected: int) -> None:
    assert quantity(text) == expected


@pytest.mark.parametrize("text", ["", "Gi", "1KB", "-1", "1e3"])
def test_a_bad_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="write it like"):
        quantity(text)


def test_dollars_are_exact_decimals() -> None:
    assert str(dollars("2.35") * 100) == "235.00"


@pytest.mark.parametrize("text", ["", "-1", "NaN", "Infinity", "1,50"])
def test_a_bad_amount_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="dollars"):
        dollars(text)


def test_counts_are_written_as_people_write_them() -> None:
    assert [counted(n, "request") for n in (0, 1, 2)] == ["0 requests", "1 request", "2 requests"]
    assert [counted(n, "pass", "passes") for n in (1, 2)] == ["1 pass", "2 passes"]
