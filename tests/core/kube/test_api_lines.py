"""Lines out of any cut of a stream into chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import Unreachable
from paceline_core.kube.client.watch import LineBuffer

LINE = st.binary(min_size=1, max_size=30).map(lambda text: text.replace(b"\n", b"n"))


@given(st.lists(LINE, max_size=20), st.binary(max_size=9).map(lambda text: text.replace(b"\n", b"")), st.data())
def test_however_a_stream_is_cut_its_lines_are_the_same(whole: list[bytes], rest: bytes, data: st.DataObject) -> None:
    text = b"".join(line + b"\n" for line in whole) + rest
    lines, found = LineBuffer(), []
    while text:
        size = data.draw(st.integers(1, len(text)))
        found += lines.feed(text[:size])
        text = text[size:]
    assert found == whole
    assert bool(lines.held) == bool(rest)


def test_empty_lines_are_nothing() -> None:
    assert LineBuffer().feed(b"\n\na\n\n") == [b"a"]


def test_a_line_beyond_the_limit_is_refused_while_it_comes() -> None:
    lines = LineBuffer(limit=10)
    assert lines.feed(b"x" * 10 + b"\n") == [b"x" * 10]
    assert lines.feed(b"x" * 6) == []
    with pytest.raises(Unreachable, match="a line of more than"):
        lines.feed(b"x" * 6)


def test_a_line_beyond_the_limit_is_refused_with_its_end_too() -> None:
    lines = LineBuffer(limit=10)
    lines.feed(b"x" * 6)
    with pytest.raises(Unreachable, match="a line of more than"):
        lines.feed(b"x" * 6 + b"\n")
