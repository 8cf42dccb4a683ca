"""The table of a study on a terminal: what stands below it."""

from rich.console import Console
from tests.simulator.rows import PROMISE, row

from paceline_cli.simulate.table import render
from paceline_simulator.comparison import Comparison
from paceline_simulator.study_rows import StudyRow


def shown(*rows: StudyRow, width: int = 200) -> str:
    console = Console(width=width)
    with console.capture() as captured:
        console.print(render(Comparison.of("default/chat", PROMISE, [(one.policy, one.seed) for one in rows], rows)))
    return captured.get()


def test_a_tie_is_explained_where_costs_are_compared_with_a_static_pool() -> None:
    text = shown(row("slo", 0, 0.99, 2.1), row("static:2", 0, 0.99, 2.0))
    assert "+5%, tie" in text
    assert "a cost within 10% of static:2's is a tie" in text


def test_without_a_static_pool_that_holds_no_tie_is_mentioned() -> None:
    assert "tie" not in shown(row("slo", 0, 0.99), row("static:2", 0, 0.5))


def test_a_table_fits_into_eighty_columns() -> None:
    rows = [row("hpa-queue", 0, 0.998, 102.1), row("slo", 0, 1.0, 101.2), row("static:12", 10, 1.0, 100.0)]
    assert "…" not in shown(*rows, width=80)
