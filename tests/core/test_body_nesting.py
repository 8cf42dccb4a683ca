"""Which bodies are looked at closely for how deep they are nested."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.nesting import LEVELS, may_be_deep


@given(st.lists(st.tuples(st.sampled_from([b"{", b"[", b"x", b"}"]), st.integers(0, LEVELS)), max_size=6))
def test_a_body_may_be_deep_if_it_has_more_brackets_than_levels(runs: list[tuple[bytes, int]]) -> None:
    body = b"".join(letter * number for letter, number in runs)
    assert may_be_deep(body) == (body.count(b"{") + body.count(b"[") > LEVELS)
