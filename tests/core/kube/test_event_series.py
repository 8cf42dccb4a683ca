"""Which events are written, and how rarely."""

from dataclasses import replace
from datetime import UTC, datetime

from paceline_core.kube import Event, ObjectKey
from paceline_core.kube.events import BURST, GAP_S, REFILL_S, SERIES, EventCorrelator, series_key

CHAT = ObjectKey("default", "chat")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
UP = Event("InferenceService", CHAT, "Normal", "ScaledUp", "1 to 2 replicas: ttft p95 612.5/500ms")


def write(book: EventCorrelator, now: float) -> list[int]:
    """Carry out what is due; the counts written."""
    due = book.due(now)
    for key, series in due:
        book.done(key, "name", series.count, now)
    return [series.count for _, series in due]


def test_numbers_do_not_make_a_new_series() -> None:
    assert series_key(UP) == series_key(replace(UP, message="3 to 14 replicas: ttft p95 9/500ms"))
    assert series_key(UP) != series_key(replace(UP, message="1 to 2 replicas: queue 7"))
    assert series_key(UP) != series_key(replace(UP, reason="ScaledDown"))
    assert series_key(UP) != series_key(replace(UP, key=ObjectKey("default", "other")))


def test_the_first_is_due_at_once_and_the_newest_words_later() -> None:
    book = EventCorrelator()
    book.note(UP, NOW)
    assert write(book, 0) == [1]
    assert book.wait(0) is None
    book.note(replace(UP, message="2 to 3 replicas: ttft p95 700/500ms"), NOW)
    book.note(replace(UP, message="3 to 4 replicas: ttft p95 800/500ms"), NOW)
    assert book.due(1) == []
    assert book.wait(1) == GAP_S - 1
    ((_, series),) = book.due(GAP_S)
    assert (series.count, series.event.message) == (3, "3 to 4 replicas: ttft p95 800/500ms")


def test_a_thousand_at_once_are_two_writes() -> None:
    book = EventCorrelator()
    written = []
    for moment in range(1000):
        book.note(UP, NOW)
        written += write(book, moment / 1000)
    assert written == [1]
    assert write(book, GAP_S) == [1000]


def test_a_failure_that_repeats_for_a_day_costs_the_burst_and_one_write_each_five_minutes() -> None:
    book, writes = EventCorrelator(), 0
    for second in range(0, 86_400, 5):
        book.note(UP, NOW)
        writes += len(write(book, second))
    assert writes <= BURST + 86_400 / REFILL_S
    assert writes >= 86_400 / REFILL_S


def test_one_object_that_shouts_does_not_silence_another() -> None:
    book = EventCorrelator()
    for number in range(BURST + 10):
        book.note(replace(UP, reason=f"Reason{number}"), NOW)
    assert len(write(book, 0)) == BURST
    book.note(replace(UP, key=ObjectKey("default", "other")), NOW)
    assert write(book, 0) == [1]
    assert 0 < (book.wait(0) or 0) <= REFILL_S
    assert write(book, REFILL_S) == [1]


def test_what_was_not_written_is_tried_again_later() -> None:
    book = EventCorrelator()
    book.note(UP, NOW)
    ((key, _),) = book.due(0)
    book.done(key, "", 0, 0)
    assert book.due(1) == []
    assert write(book, GAP_S) == [1]


def test_it_remembers_a_bounded_number_of_series() -> None:
    book = EventCorrelator()
    for number in range(SERIES * 2):
        book.note(replace(UP, key=ObjectKey("default", f"s{number}")), NOW)
    assert len(write(book, 0)) == SERIES


def test_writes_that_were_not_accepted_spend_nothing_so_that_the_next_accepted_one_need_not_wait() -> None:
    book = EventCorrelator()
    for second in range(0, 3450, 5):
        book.note(UP, NOW)
        for key, series in book.due(second):
            book.done(key, "", series.count, second, accepted=False)
    book.note(UP, NOW)
    wait = book.wait(3450)
    assert wait is not None
    assert wait <= GAP_S
