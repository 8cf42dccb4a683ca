"""What a history lacks of the last week, and how another one fills it."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_autoscaler.model.unknown_work import TOLERATED_BINS, UnknownSpan, filled, unknown_spans
from paceline_autoscaler.model.work_history import BIN_S, MAX_BINS, WorkHistory

END = 1_800_000_000.0
DAY_S = 86_400.0
CODES = st.lists(st.sampled_from([0, 0, 1, 50, 200]), max_size=60).map(bytes)


def ending(codes: bytes, end: float = END) -> WorkHistory:
    return WorkHistory(end - len(codes) * BIN_S, codes)


def code_at(history: WorkHistory, bin_: int) -> int:
    place = bin_ - round(history.begin / BIN_S)
    return history.codes[place] if 0 <= place < len(history.codes) else 0


def test_all_of_the_week_is_unknown_at_first_newest_day_first() -> None:
    found = unknown_spans([], END + 7.0)
    assert found == tuple(UnknownSpan(END - (day + 1) * DAY_S, END - day * DAY_S) for day in range(7))


def test_nothing_is_asked_for_where_a_restart_left_a_few_bins_out() -> None:
    whole = ending(bytes([9]) * (MAX_BINS - TOLERATED_BINS), END - TOLERATED_BINS * BIN_S)
    assert unknown_spans([whole], END) == ()
    assert unknown_spans([whole], END + BIN_S)[0] == UnknownSpan(END - TOLERATED_BINS * BIN_S, END + BIN_S)


def test_an_old_history_lacks_what_came_since() -> None:
    assert unknown_spans([ending(bytes([9]) * MAX_BINS, END - 3600)], END) == (UnknownSpan(END - 3600, END),)


def test_what_one_of_several_roles_lacks_is_unknown() -> None:
    whole = ending(bytes([9]) * MAX_BINS)
    assert unknown_spans([whole, WorkHistory()], END) == unknown_spans([], END)


def test_a_history_that_ends_after_now_is_no_reason_to_ask() -> None:
    """The clock of the process that stored it may be ahead."""
    assert unknown_spans([ending(bytes([9]) * MAX_BINS, END + 60)], END) == ()


@given(CODES, st.integers(-80, 80), CODES)
def test_a_bin_that_is_known_stays_and_any_other_is_the_others(own: bytes, shift: int, other: bytes) -> None:
    mine, theirs = ending(own), ending(other, END + shift * BIN_S)
    joined = filled(mine, theirs)
    for bin_ in range(round(END / BIN_S) - 160, round(END / BIN_S) + 160):
        assert code_at(joined, bin_) == (code_at(mine, bin_) or code_at(theirs, bin_))


def test_the_newest_week_of_both_is_kept() -> None:
    joined = filled(ending(bytes([9]) * MAX_BINS, END - 600 * BIN_S), ending(bytes([7]) * 600))
    assert (len(joined.codes), joined.codes[-601:-599]) == (MAX_BINS, b"\x09\x07")


def test_how_bins_vary_is_known_from_the_longer_one() -> None:
    long = WorkHistory(END - 20 * BIN_S, bytes([9]) * 20, variance=2.0, mean=4.0)
    short = WorkHistory(END - 5 * BIN_S, bytes([7]) * 5, variance=9.0, mean=1.0)
    assert filled(short, long).dispersion == filled(long, short).dispersion == 0.5
