"""Stop strings: judged on the text alone, and never shown even in part."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_workers.server.text.output import StopMatcher

letters = st.text("ab<", max_size=24)
stop_lists = st.lists(st.text("ab<", min_size=1, max_size=4), min_size=1, max_size=3)
cuts = st.lists(st.integers(1, 6), min_size=1, max_size=24)


def first_complete(text: str, stops: list[str]) -> tuple[str, str]:
    """The slow truth: (text before, stop) at the first character that completes a stop, the longest one there."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, ""


def matched(text: str, stops: list[str], cuts: list[int]) -> tuple[str, str]:
    matcher, out, start, turn = StopMatcher(stops), "", 0, 0
    while start < len(text):
        size = cuts[turn % len(cuts)]
        out += matcher.feed(text[start : start + size])
        start, turn = start + size, turn + 1
    return out + matcher.flush(), matcher.matched


@given(letters, stop_lists, cuts)
def test_the_text_ends_before_the_first_complete_stop_however_it_is_cut(
    text: str, stops: list[str], cuts: list[int]
) -> None:
    assert matched(text, stops, cuts) == first_complete(text, stops)


@given(letters, stop_lists)
def test_what_is_out_could_never_become_a_stop(text: str, stops: list[str]) -> None:
    matcher, out = StopMatcher(stops), ""
    for character in text:
        out += matcher.feed(character)
    before, _ = first_complete(text, stops)
    assert before.startswith(out)


def test_a_stop_over_the_border_of_two_pieces_is_found() -> None:
    matcher = StopMatcher(["</end>"])
    assert [matcher.feed("done<"), matcher.feed("/end> more"), matcher.flush()] == ["done", "", ""]
    assert matcher.matched == "</end>"


def test_a_prefix_that_leads_nowhere_is_let_out() -> None:
    matcher = StopMatcher(["</end>"])
    assert [matcher.feed("a <"), matcher.feed("b"), matcher.flush()] == ["a ", "<b", ""]
