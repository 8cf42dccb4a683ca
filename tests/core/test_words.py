"""How words of others are shown in messages, and which word was meant."""

from hypothesis import given
from hypothesis import strategies as st

from paceline_core.units import closest, edits, printable, truncate


def test_what_is_over_40_characters_is_cut_to_40_with_a_sign_that_more_was_there() -> None:
    assert truncate("x" * 40) == "x" * 40
    assert truncate("x" * 41) == f"{'x' * 39}…"


def test_what_a_terminal_would_act_on_is_escaped_and_other_letters_are_left() -> None:
    assert printable("a\n\x1b[31mß€") == "a\\n\\x1b[31mß€"


def test_the_closest_word_is_few_letters_away_and_a_far_one_is_none() -> None:
    fields = ("mountPath", "runtime", "engine", "classes", "pools", "rollout", "servedName", "model")
    for word, meant in {
        "pool": "pools",
        "modle": "model",
        "served_name": "servedName",
        "Served-Name": "servedName",
        "rollouts": "rollout",
        "drainTimeout": "",
        "hostPath": "",
        "zzz": "",
        "": "",
        "x" * 5000: "",
    }.items():
        assert closest(word, fields) == meant
    assert closest("rollot", fields, most=1) == "rollout"
    assert closest("rolt", fields, most=1) == ""
    assert closest("h1000", ("h200", "h100", "cpu")) == "h100"


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_edits_are_the_same_both_ways_none_for_the_same_and_one_for_neighbours_swapped(one: str, other: str) -> None:
    assert edits(one, other) == edits(other, one)
    assert (edits(one, other) == 0) == (one == other)
    assert abs(len(one) - len(other)) <= edits(one, other) <= max(len(one), len(other))
    assert edits(f"{one}ab{other}", f"{one}ba{other}") == 1
