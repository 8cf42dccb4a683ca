"""A chat's ids from segments that came before: the same ids, fewer texts encoded, and no word of another tenant's."""

import asyncio

import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.worker.conftest import TEXT

from paceline_workers import demo
from paceline_workers.server.text.tokenizer import LEAST, PARTS, SPLIT_CHARACTERS, SegmentCache, Tokenizer

SYSTEM = "You keep the promise of a service, and say what it costs. " * 10
CHAT = "<|system|>\n{}<|end|>\n<|user|>\n{}<|end|>\n<|assistant|>\n"
PIECES = ["<|end|>", "<|user|>", "<|", "|>", "end", "\n", " ", "  ", "naïve", "漢", "<|user", SYSTEM, "it's 10:42"]


def inner() -> tokenizers.Tokenizer:
    return tokenizers.Tokenizer.from_str((demo.FOLDER / "tokenizer.json").read_text())


def overlapping() -> Tokenizer:
    """With special tokens that begin alike, and others that are found in what those leave."""
    made = inner()
    made.add_special_tokens(["<a>", "<a><b>", "b>"])
    made.add_tokens(["<ab", "<b>"])
    return Tokenizer(made, {})


CACHING, OVERLAPPING = Tokenizer.load(demo.FOLDER), overlapping()


@given(st.lists(st.sampled_from(PIECES) | st.characters(codec="utf-8"), max_size=12))
def test_segments_in_a_row_have_the_ids_of_the_whole(parts: list[str]) -> None:
    text = "".join(parts)
    whole = CACHING.encode_now(text, special=False)
    for _ in range(2):
        assert asyncio.run(CACHING.encode_chat(text, "tenant")) == whole


@given(st.lists(st.sampled_from(["<a>", "<a><b>", "b>", "<b>", "<a", ">", "x", "<ab"]), max_size=10))
def test_special_tokens_that_begin_alike_are_cut_as_the_tokenizer_does(parts: list[str]) -> None:
    text = "".join(parts)
    assert asyncio.run(OVERLAPPING.encode_chat(text, "")) == OVERLAPPING.encode_now(text, special=False)


def test_a_long_segment_is_known_the_next_time_and_a_short_one_is_not() -> None:
    segments = SegmentCache(inner(), exact=True)
    for part in segments.split(CHAT.format(SYSTEM, "hello")):
        segments.keep("a", part, [1, 2])
    assert list(segments.known("a", f"\n{SYSTEM}") or ()) == [1, 2]
    assert segments.known("a", "\nhello") is None


def test_a_text_of_too_many_parts_stays_whole_and_has_the_same_ids() -> None:
    segments = SegmentCache(inner(), exact=True)
    assert len(segments.split("<|end|>a" * (PARTS // 2 - 1))) == PARTS - 2
    many = "<|end|>a" * PARTS
    assert segments.split(many) == [many]
    assert asyncio.run(CACHING.encode_chat(many, "")) == CACHING.encode_now(many, special=False)


def test_a_special_token_needs_no_encoding() -> None:
    segments = SegmentCache(inner(), exact=True)
    assert segments.known("", "<|end|>") == [inner().token_to_id("<|end|>")]


def test_nobody_finds_what_another_tenant_asked() -> None:
    segments = SegmentCache(inner(), exact=True)
    segments.keep("a", SYSTEM, [1])
    assert segments.known("b", SYSTEM) is None


def test_the_least_recently_used_go_first() -> None:
    segments = SegmentCache(inner(), exact=True, characters=3 * LEAST)
    texts = [letter * LEAST for letter in "abc"]
    for text in texts:
        segments.keep("", text, [1])
    segments.known("", texts[0])
    segments.keep("", "d" * LEAST, [1])
    assert [segments.known("", text) is None for text in texts] == [False, True, False]
    segments.keep("", "e" * 4 * LEAST, [1])
    assert segments.known("", texts[0]) is not None


def test_a_tokenizer_that_looks_over_its_special_tokens_is_left_whole(byte_fallback: Tokenizer) -> None:
    whole = CHAT.format(SYSTEM, "hello")
    assert SegmentCache(inner(), exact=False).split(whole) == [whole]
    words = inner()
    words.add_special_tokens([tokenizers.AddedToken("<w>", single_word=True)])
    assert SegmentCache(words, exact=True).split(whole) == [whole]
    text = "the cats " * LEAST
    assert asyncio.run(byte_fallback.encode_chat(text, "")) == byte_fallback.encode_now(text, special=False)


async def test_a_text_too_long_to_search_is_encoded_whole(tokenizer: Tokenizer) -> None:
    text = TEXT * (SPLIT_CHARACTERS // len(TEXT) + 1)
    assert await tokenizer.encode_chat(text, "") == await tokenizer.encode(text, special=False)
