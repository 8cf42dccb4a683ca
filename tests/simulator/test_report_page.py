"""The page is complete in itself, well formed, and shows each policy, decision and text as it is."""

from html.parser import HTMLParser

import pytest
from tests.simulator.rows import PROMISE, row

from paceline_simulator.comparison import Comparison
from paceline_simulator.report_page import nines, report_page
from paceline_simulator.study_rows import Interval

VOID = {"meta", "br", "input", "path", "circle", "i", "col"}
LOOSE = {"li", "p", "tr", "td", "th", "tbody", "thead"}
"""Elements whose end HTML does not ask for."""


class Page(HTMLParser):
    """Collects links, texts and elements that are not closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.words: list[str] = []
        self.wrong: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.outside += [str(value) for name, value in attrs if name in ("src", "href", "action", "data", "srcset")]
        if tag not in VOID | LOOSE:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID | LOOSE and self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page(*rows: object) -> str:
    found = rows or (row("slo"), row("slo", 1, 0.99), row("static:3", 0, 0.999, 3.0), row("static:4", 0, 1.0, 4.0))
    runs = [(one.policy, one.seed) for one in found]  # type: ignore[attr-defined]
    return report_page(Comparison.of("default/chat", PROMISE, runs, found), "a <trace>.csv")  # type: ignore[arg-type]


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    text = page()
    made = Page(text)
    assert made.outside == []
    assert "<script" not in text
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_the_page_is_well_formed_and_escapes_what_it_is_given() -> None:
    made = Page(page())
    assert (made.open, made.wrong) == ([], [])
    words = "".join(made.words)
    assert "a <trace>.csv" in words
    assert "1→2: demand <needs> 2" in words
    assert "no <trace>" not in words


def test_each_policy_has_a_line_a_point_and_a_timeline_with_its_decisions() -> None:
    text = page()
    for number, policy in enumerate(("slo", "static:3", "static:4")):
        assert f"<th>{policy}</th>" in text
        assert f'for="policy-{number}"' in text
        assert f'id="timeline-{number}"' in text
    assert text.count("<title>0:12 1→2: demand &lt;needs&gt; 2</title>") == 3


def test_a_run_of_a_few_seconds_is_drawn() -> None:
    short = row("slo", timeline=row("slo").timeline[:1], decisions=(), score=(1.0, 4.0))
    assert "This policy gives no reasons" in page(short)


def test_a_day_is_drawn_with_few_points_and_keeps_its_longest_queue() -> None:
    day = tuple(Interval(10.0 * n, 1.0, 1.0, 1, 1, 0, 0, 77 if n == 5000 else 0, 0) for n in range(8640))
    text = page(row("slo", timeline=day, score=(600.0, 86400.0)))
    assert len(text) < 120_000
    queue = text[text.index("Requests waiting") :]
    assert ">80<" in queue or ">100<" in queue


@pytest.mark.parametrize(("attainment", "count"), [(0.0, 0.0), (0.9, 1.0), (0.99, 2.0), (0.9999, 4.0), (1.0, 4.0)])
def test_attainment_is_drawn_by_its_nines(attainment: float, count: float) -> None:
    assert nines(attainment) == pytest.approx(count, abs=1e-9)
