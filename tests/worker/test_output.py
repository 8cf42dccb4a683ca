"""From frames to pieces: text, ids, finish reason, and the ways a sequence fails."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Timing, Tokens
from paceline_workers.server.text.output import Piece, TextOutput
from paceline_workers.server.text.tokenizer import Tokenizer

LETTERS = "abcdefgh. "


def spell(ids: Sequence[int]) -> str:
    """A tokenizer of one letter a token."""
    return "".join(LETTERS[token] for token in ids)


def frames(text: str, finish: str = "length") -> list[Tokens]:
    ids = [LETTERS.index(letter) for letter in text]
    return [Tokens("s", at, [token], finish if at == len(ids) - 1 else "") for at, token in enumerate(ids)]


def fed(output: TextOutput, batches: Sequence[Sequence[Tokens]]) -> list[Piece]:
    out = []
    for batch in batches:
        piece = output.feed(batch)
        if piece is not None:
            out.append(piece)
            if piece.finish:
                break
    return out


def test_text_ids_and_counts_of_a_plain_answer() -> None:
    output = TextOutput(spell)
    pieces = fed(output, [[frame] for frame in frames("abc")])
    assert [(piece.text, piece.position, piece.ids, piece.finish) for piece in pieces] == [
        ("a", 0, [0], ""), ("b", 1, [1], ""), ("c", 2, [2], "length"),
    ]  # fmt: skip
    assert output.tokens == 3


def test_a_slow_reader_gets_one_piece_for_many_frames() -> None:
    (piece,) = fed(TextOutput(spell), [frames("abcd")])
    assert (piece.text, piece.ids, piece.finish) == ("abcd", [0, 1, 2, 3], "length")


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8))
def test_a_stop_string_cuts_text_and_tokens_however_frames_are_batched(sizes: list[int]) -> None:
    output, all_frames = TextOutput(spell, stops=["de"]), frames("abcdefgh")
    batches: list[list[Tokens]] = []
    while all_frames:
        size = sizes[len(batches) % len(sizes)]
        batches.append(all_frames[:size])
        all_frames = all_frames[size:]
    pieces = fed(output, batches)
    assert "".join(piece.text for piece in pieces) == "abc"
    assert [token for piece in pieces for token in piece.ids] == [0, 1, 2, 3, 4]
    assert (pieces[-1].finish, output.tokens) == ("stop", 5)


def test_a_stop_string_inside_one_frame_drops_the_tokens_after_it() -> None:
    output = TextOutput(spell, stops=["b"])
    piece = output.feed([Tokens("s", 0, [0, 1, 2, 3], "length")])
    assert piece is not None
    assert (piece.text, piece.ids, piece.finish, output.tokens) == ("a", [0, 1], "stop", 2)


def test_withheld_text_brings_its_ids_with_the_next_piece() -> None:
    output = TextOutput(spell, stops=["bch"])
    pieces = fed(output, [[frame] for frame in frames("abcd")])
    assert [(piece.text, piece.position, piece.ids) for piece in pieces] == [("a", 0, [0]), ("bcd", 1, [1, 2, 3])]


def test_a_possible_stop_at_the_end_is_let_out() -> None:
    (piece,) = fed(TextOutput(spell, stops=["bz"]), [frames("ab")])
    assert (piece.text, piece.finish) == ("ab", "length")


def test_stop_strings_wait_for_min_tokens() -> None:
    pieces = fed(TextOutput(spell, stops=["b"], min_tokens=3), [[frame] for frame in frames("abcdbe")])
    assert "".join(piece.text for piece in pieces) == "abcd"


def test_logprobs_stay_with_their_tokens() -> None:
    output = TextOutput(spell, stops=["cc"])
    entries = [(-0.1, [(0, -0.1)]), (-0.2, [(1, -0.2)])]
    assert output.feed([Tokens("s", 0, [2], logprobs=entries[:1])]) is None
    piece = output.feed([Tokens("s", 1, [1], "length", logprobs=entries[1:])])
    assert piece is not None
    assert piece.logprobs == entries


@pytest.mark.parametrize("stops", [[], ["gg"]])
def test_the_token_that_stops_is_counted_but_not_shown(stops: list[str]) -> None:
    output = TextOutput(spell, stops=stops)
    piece = output.feed([Tokens("s", 0, [0, 1, 2], "stop", logprobs=[(-0.1, []), (-0.2, []), (-0.3, [])])])
    assert piece is not None
    assert (piece.text, piece.ids, piece.finish, output.tokens) == ("ab", [0, 1, 2], "stop", 3)
    assert piece.logprobs == [(-0.1, []), (-0.2, [])]


def test_cached_tokens_and_timing_are_kept() -> None:
    output, timing = TextOutput(spell), Timing(0.1, 0.0, 0.2, 0.3)
    output.feed([Tokens("s", 0, [0], cached=7), Tokens("s", 1, [1], "stop", timing=timing)])
    assert (output.cached, output.timing) == (7, timing)


@pytest.mark.parametrize(
    ("finish", "code"),
    [
        ("error", Code.ENGINE_FAILED),
        ("abort", Code.HELD_TIMEOUT),
        ("refused", Code.INVALID_REQUEST),
        ("queue_full", Code.QUEUE_FULL),
    ],
)
def test_a_sequence_that_the_engine_gave_up_says_why(finish: str, code: Code) -> None:
    with pytest.raises(RequestError, match="too poor") as caught:
        TextOutput(spell).feed([Tokens("s", 0, [], finish, "too poor")])
    assert caught.value.code is code


def test_half_a_character_at_the_end_is_flushed(byte_fallback: Tokenizer) -> None:
    output = TextOutput(byte_fallback.decode)
    assert output.feed([Tokens("s", 0, [2 + 0xF0])]) is None
    piece = output.feed([Tokens("s", 1, [1], "stop")])
    assert piece is not None
    assert (piece.text, piece.ids) == ("\ufffd", [2 + 0xF0, 1])


tokens_of_a_stream = st.lists(st.sampled_from([*range(2, 258), 259, 260, 261, 262, 263]), min_size=2, max_size=20)


@given(ids=tokens_of_a_stream, stops=st.sampled_from([[], ["ca", "s."], ["é"]]), least=st.integers(0, 5))
def test_an_output_goes_on_at_any_token_as_if_it_had_never_stopped(
    byte_fallback: Tokenizer, ids: list[int], stops: list[str], least: int
) -> None:
    """Random bytes and pieces: characters are cut anywhere, and most bytes are no UTF-8 at all."""

    def output() -> TextOutput:
        return TextOutput(byte_fallback.decode, stops=stops, min_tokens=least)

    def frames_of(start: int) -> list[Tokens]:
        last = len(ids) - 1
        return [Tokens("s", at, [ids[at]], "length" if at == last else "") for at in range(start, last + 1)]

    pieces = fed(output(), [[frame] for frame in frames_of(0)])
    whole = "".join(piece.text for piece in pieces)
    for piece in pieces[:-1]:
        told, resumed = piece.position + len(piece.ids), output()
        before = resumed.replay(ids[:told]).text
        rest = fed(resumed, [[frame] for frame in frames_of(told)])
        assert before + "".join(piece.text for piece in rest) == whole
        assert (rest[0].position, resumed.tokens) == (told, pieces[-1].position + len(pieces[-1].ids))
