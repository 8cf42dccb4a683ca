"""A week of work in little room, with its gaps, and how it is recorded."""

from math import sin
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_autoscaler.model.work_history import (
    BIN_S,
    MAX_BINS,
    RATES,
    WorkHistory,
    WorkMeter,
    code_of,
    packed,
    unpacked,
)

BEGIN = 1_800_000_000.0


def history(*rates: float | None, begin: float = BEGIN) -> WorkHistory:
    made = WorkHistory()
    for number, rate in enumerate(rates):
        made = made.having(begin + number * BIN_S, rate)
    return made


@given(st.floats(0.01, 2000))
def test_a_rate_is_kept_to_five_percent(rate: float) -> None:
    assert RATES[code_of(rate)] == pytest.approx(rate, rel=0.026)


def test_no_work_is_told_from_work_that_is_not_known() -> None:
    assert (code_of(0.0), code_of(0.004), code_of(0.006), code_of(1e9)) == (1, 1, 2, 255)
    assert history(0.0, None, 0.0).codes == b"\1\0\1"


def test_bins_that_were_not_observed_part_the_history() -> None:
    made = history(1.0, 2.0, None, None, 4.0).having(BEGIN + 8 * BIN_S, 8.0)
    assert [[round(rate, 1) for rate in part] for part in made.segments()] == [[1.0, 2.0], [4.0], [8.0]]
    assert made.begin == BEGIN


def test_a_week_is_kept_and_what_is_older_is_forgotten() -> None:
    made = WorkHistory(BEGIN, bytes([7]) * MAX_BINS).having(BEGIN + (MAX_BINS + 1) * BIN_S, 1.0)
    assert len(made.codes) == MAX_BINS
    assert made.begin == BEGIN + 2 * BIN_S
    later = made.having(BEGIN + 3 * MAX_BINS * BIN_S, 1.0)
    assert (later.begin, len(later.codes)) == (BEGIN + 3 * MAX_BINS * BIN_S, 1)


def test_a_week_of_busy_days_takes_less_than_twenty_kilobytes() -> None:
    random = Random(1)
    rates = [10 * (1.5 + sin(number / 458)) * random.lognormvariate(0, 0.1) for number in range(MAX_BINS)]
    text = packed(bytes(code_of(rate) for rate in rates))
    assert len(text) <= 20_000


@given(st.binary(max_size=100))
def test_what_is_packed_is_unpacked(codes: bytes) -> None:
    assert unpacked(packed(codes)) == codes == unpacked(codes)


@pytest.mark.parametrize("text", ["not base64!", packed(b"abc")[:-8], "AAAA"])
def test_a_damaged_history_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"damaged|base64|padding"):
        unpacked(text)


def test_a_bin_has_the_mean_of_its_rates_however_often_they_are_seen() -> None:
    meter = WorkMeter()
    for second in range(1, 92):
        if second % 3:
            meter.add(BEGIN + second, 2.0 if second <= 30 else 4.0, 1.0 if second % 3 == 1 else 2.0)
    (rates,) = meter.history.segments()
    assert rates == pytest.approx([2.0, 4.0, 4.0], rel=0.05)
    assert meter.history.begin == BEGIN


def test_a_bin_of_which_less_than_half_was_seen_is_not_known() -> None:
    meter = WorkMeter()
    for second in (*range(1, 31), *range(31, 40), *range(61, 95)):
        meter.add(BEGIN + second, 2.0, 1.0)
    assert [len(part) for part in meter.history.segments()] == [1, 1]
    assert len(meter.history.codes) == 3


def test_the_dispersion_of_poisson_arrivals_is_the_work_of_one_request() -> None:
    """Requests of 0.2 replica-s, 20 a second: the variance of their rate in ten seconds is 4 x 0.2 / 10."""
    random, meter, next_s = Random(5), WorkMeter(), 0.0
    for number in range(1, 6000):
        count = 0
        while next_s < 5 * number:
            next_s += random.expovariate(20.0)
            count += 1
        meter.add(BEGIN + 5 * number, count * 0.2 / 5, 5.0)
    assert meter.history.mean == pytest.approx(4.0, rel=0.02)
    assert meter.history.dispersion == pytest.approx(0.2 / 10, rel=0.15)


def known(begin: float, *rates: float) -> WorkHistory:
    return WorkHistory(begin, bytes(map(code_of, rates)), variance=sum(rates), mean=1.0)


def test_another_process_goes_on_where_one_ended() -> None:
    """What neither has seen is not known; the longer one says how bins vary."""
    joined = known(0.0, 1.0, 2.0).continued_by(known(4 * BIN_S, 4.0))
    assert joined.codes == bytes([code_of(1.0), code_of(2.0), 0, 0, code_of(4.0)])
    assert joined.variance == 3.0


def test_what_ended_too_long_ago_or_has_not_begun_is_left_out() -> None:
    late = (MAX_BINS + 10) * BIN_S
    assert known(0.0, 1.0).continued_by(known(late, 2.0)).codes == bytes([code_of(2.0)])
    assert known(late, 1.0).continued_by(known(0.0, 2.0)).codes == bytes([code_of(2.0)])
    assert known(0.0, 1.0).continued_by(WorkHistory()) == known(0.0, 1.0)


def test_bins_of_less_work_and_unknown_ones_are_not_counted() -> None:
    history = WorkHistory(codes=bytes([0, code_of(0.0), code_of(0.02), code_of(0.05), code_of(3.0)]))
    assert (history.known, history.worked(0.05), history.worked(0.0)) == (4, 2, 4)
