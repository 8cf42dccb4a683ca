"""What of the work is kept as knowledge, and how often that is renewed."""

from dataclasses import replace

import pytest
from tests.autoscaler.factories import NOW, demand, observation

from paceline_autoscaler.model.history import learn
from paceline_autoscaler.model.history_recorder import RENEW_S, HistoryRecorder
from paceline_autoscaler.model.work_history import BIN_S, RATES, WorkHistory, code_of
from paceline_autoscaler.state import Knowledge, LearnedState, State

LEARNED = learn(observation(), State()).learned
"""A replica has reported its speed."""


def run(recorder: HistoryRecorder, knowledge: Knowledge, seconds: float, rate: float = 2.0) -> list[Knowledge]:
    """The knowledge after each pass, one every five seconds."""
    found = [knowledge]
    for passed in range(0, round(seconds) + 1, 5):
        seen = observation(now=NOW + passed, demand=demand(rate))
        found.append(recorder.knowledge(seen, LEARNED, found[-1]))
    return found


def test_work_becomes_known_bin_by_bin() -> None:
    recorder = HistoryRecorder()
    run(recorder, Knowledge(), 10 * BIN_S)
    ((role, history),) = recorder.histories
    assert role == "both"
    assert [RATES[code] for code in history.codes if code] == pytest.approx([2.0] * history.known, rel=0.03)
    assert 9 <= history.known <= 10


def test_knowledge_is_renewed_every_ten_minutes() -> None:
    found = run(HistoryRecorder(), Knowledge(), 3 * RENEW_S)
    assert len(set(map(id, found))) == 1 + 3
    assert found[-1].history("both").known == pytest.approx(3 * RENEW_S / BIN_S, abs=2)


def test_a_long_history_is_renewed_less_often() -> None:
    """A day of it once an hour."""
    day = WorkHistory(NOW - 86_400.0, bytes([code_of(2.0)]) * 2880, mean=2.0)
    found = run(HistoryRecorder(), Knowledge((("both", day),)), 3600 + RENEW_S)
    assert len(set(map(id, found))) == 2
    assert found[-1].history("both").known == pytest.approx(2880 + 120, abs=2)


def test_what_is_not_seen_is_not_known() -> None:
    recorder = HistoryRecorder()
    for passed in range(0, 600, 5):
        silent = 200 <= passed < 400
        seen = observation(now=NOW + passed, demand=replace(demand(2.0), heard=0 if silent else 1))
        recorder.knowledge(seen, LEARNED, Knowledge())
    codes = recorder.histories[0][1].codes
    assert codes.count(0) == pytest.approx(200 / BIN_S, abs=2)
    assert codes[0] == codes[-1] == code_of(2.0)


def test_without_a_known_speed_work_is_not_known() -> None:
    recorder = HistoryRecorder()
    recorder.knowledge(observation(), LearnedState(), Knowledge())
    recorder.knowledge(observation(now=NOW + 60), LearnedState(), Knowledge())
    assert recorder.histories == ()


def test_minutes_of_past_work_are_no_knowledge_yet() -> None:
    """A young service that came under load would keep replicas for the mean of these minutes when it is idle."""
    recorder, minutes = HistoryRecorder(), WorkHistory(NOW - 8 * BIN_S, bytes([code_of(2.6)]) * 8, mean=2.6)
    assert recorder.fill([("both", minutes)], Knowledge()) == Knowledge()
    assert recorder.histories == (("both", minutes),)


def test_past_work_is_known_at_once() -> None:
    recorder, count = HistoryRecorder(), round(RENEW_S / BIN_S)
    past = WorkHistory(NOW - count * BIN_S, bytes([code_of(2.0)]) * count, mean=2.0)
    assert recorder.fill([("both", past)], Knowledge()).history("both").known == count
