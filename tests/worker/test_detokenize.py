"""Pieces of text put together are the text of the whole, and no half character is ever given out."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from paceline_workers import demo
from paceline_workers.server.text.output import HELD, WINDOW, Detokenizer
from paceline_workers.server.text.tokenizer import Tokenizer

DEMO = Tokenizer.load(demo.FOLDER)
any_text = st.text(max_size=60) | st.text("é漢👩‍🚀 a🇫🇷", max_size=40)
demo_ids = st.lists(st.integers(0, DEMO.size - 1) | st.integers(4, 260), max_size=80)
sizes = st.lists(st.integers(1, 5), min_size=1, max_size=80)


def pieces(tokenizer: Tokenizer, ids: Sequence[int], sizes: Sequence[int]) -> list[str]:
    """What a detokenizer gives out when fed `sizes` tokens at a time, round and round; the flush is last."""
    detokenizer, out, start, turn = Detokenizer(tokenizer.decode), [], 0, 0
    while start < len(ids):
        size = sizes[turn % len(sizes)]
        out.append(detokenizer.feed(ids[start : start + size]))
        start, turn = start + size, turn + 1
    return [*out, detokenizer.flush()]


@given(demo_ids, sizes)
def test_any_byte_level_tokens_give_the_text_of_the_whole(ids: list[int], sizes: list[int]) -> None:
    assert "".join(pieces(DEMO, ids, sizes)) == DEMO.decode(ids)


@given(any_text, sizes)
def test_real_text_comes_in_whole_characters(text: str, sizes: list[int]) -> None:
    ids = DEMO.encode_now(text, special=False)
    *fed, last = pieces(DEMO, ids, sizes)
    assert "".join(fed) + last == DEMO.decode(ids)
    if "\ufffd" not in text:
        assert all("\ufffd" not in piece for piece in fed)
        assert last == ""


@given(words=st.lists(st.sampled_from([*"é漢👩 ", "▁the", "▁a", "cat", "s", ".", "</s>"]), max_size=40), sizes=sizes)
def test_byte_fallback_and_leading_spaces_give_the_text_of_the_whole(
    words: list[str], sizes: list[int], byte_fallback: Tokenizer
) -> None:
    ids = [token for word in words for token in fallback_ids(byte_fallback, word)]
    *fed, last = pieces(byte_fallback, ids, sizes)
    assert "".join(fed) + last == byte_fallback.decode(ids)
    assert all("\ufffd" not in piece for piece in fed)


def fallback_ids(tokenizer: Tokenizer, word: str) -> list[int]:
    token = tokenizer._inner.token_to_id(word)
    if token is not None and word != "é":
        return [token]
    return [2 + byte for byte in word.encode()]


@given(ids=st.lists(st.integers(2, 257), max_size=60), sizes=sizes)
def test_bytes_that_are_no_text_never_take_a_piece_back(
    ids: list[int], sizes: list[int], byte_fallback: Tokenizer
) -> None:
    whole = byte_fallback.decode(ids)
    joined = "".join(pieces(byte_fallback, ids, sizes))
    assert joined == whole or "\ufffd" in whole


def test_a_character_split_over_four_tokens_waits_for_the_last(byte_fallback: Tokenizer) -> None:
    rocket = [2 + byte for byte in "🚀".encode()]
    assert pieces(byte_fallback, rocket, [1]) == ["", "", "", "🚀", ""]


def test_an_unfinished_character_becomes_visible_at_the_end(byte_fallback: Tokenizer) -> None:
    assert pieces(byte_fallback, [2 + 0xF0, 2 + 0x9F], [1])[-1] == "\ufffd\ufffd"


def test_the_window_stays_short_on_a_long_text() -> None:
    lengths: list[int] = []

    def decode(ids: Sequence[int]) -> str:
        lengths.append(len(ids))
        return DEMO.decode(ids)

    detokenizer = Detokenizer(decode)
    for token in DEMO.encode_now("The promise of a 漢字 is the promise. " * 60, special=False):
        detokenizer.feed([token])
    assert max(lengths) <= WINDOW + HELD
