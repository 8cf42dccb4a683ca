"""How words of others are shown in messages."""

from paceline_core.words import cut, printable


def test_what_is_over_40_characters_is_cut_to_40_with_a_sign_that_more_was_there() -> None:
    assert cut("x" * 40) == "x" * 40
    assert cut("x" * 41) == f"{'x' * 39}…"


def test_what_a_terminal_would_act_on_is_escaped_and_other_letters_are_left() -> None:
    assert printable("a\n\x1b[31mß€") == "a\\n\\x1b[31mß€"
