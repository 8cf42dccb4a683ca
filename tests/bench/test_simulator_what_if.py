"""The made week that `what-if` is timed on is one that it can answer."""

from benchmarks.simulator.what_if import LEVEL, MANIFEST, week

from paceline_autoscaler.model.work_history import MAX_BINS, RATES
from paceline_autoscaler.output.scale_writer import stored_texts
from paceline_cli.what_if.command import what_if_of
from paceline_cli.what_if.question import Question
from paceline_simulator.cluster import EPOCH


def test_the_week_is_whole_and_has_the_level_that_it_says() -> None:
    history = week().knowledge.history("both")
    assert history.known == MAX_BINS
    assert abs(sum(RATES[code] for code in history.codes) / MAX_BINS / LEVEL - 1) < 0.02


def test_the_question_can_be_asked() -> None:
    question = Question.of("ttft:p95=300ms", "1.5x", "24h", "60s", None)
    asked = what_if_of(question, MANIFEST, {"now": EPOCH.timestamp(), "stored": stored_texts(week())})
    asked.check()
    assert asked.known_s == asked.span_s == 86_400.0
