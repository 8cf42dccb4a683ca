"""The tokenizer of a model folder, and what is said when the folder is no good."""

import asyncio
import json
import os
import shutil
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tests.worker.conftest import TEXT
from tokenizers import normalizers, pre_tokenizers

from paceline_core.errors import InvalidInput
from paceline_workers import demo
from paceline_workers.server.text.tokenizer import INLINE_CHARACTERS, Tokenizer

DEMO = Tokenizer.load(demo.FOLDER)
LEAST_TURNS = 20_000
"""While the library holds the lock, the loop turns at most the 2000 times before it took it; else 150 000 times."""


def _normalize(inner: tokenizers.Tokenizer) -> None:
    inner.normalizer = normalizers.Strip()


def _split(inner: tokenizers.Tokenizer) -> None:
    removing = pre_tokenizers.Split(" ", "removed")
    inner.pre_tokenizer = pre_tokenizers.Sequence([removing, pre_tokenizers.ByteLevel(use_regex=False)])


def _swallow(inner: tokenizers.Tokenizer) -> None:
    inner.add_tokens([tokenizers.AddedToken("<x>", lstrip=True)])


SHRINKING = {"normalizer": _normalize, "split": _split, "added": _swallow}


def test_text_comes_back_from_its_ids(tokenizer: Tokenizer, reply: list[int]) -> None:
    assert tokenizer.decode(reply) == TEXT


def test_special_tokens_are_left_out_of_the_text(tokenizer: Tokenizer, reply: list[int]) -> None:
    assert tokenizer.decode([*reply, 0]) == TEXT


def test_a_decoder_may_keep_one_special_token(tokenizer: Tokenizer, reply: list[int]) -> None:
    name = tokenizer.token_text(0)
    decode = tokenizer.decoder([name])
    assert decode([*reply, 0, *reply, 0]) == f"{TEXT}{name}{TEXT}{name}"
    assert decode(reply) == TEXT
    assert tokenizer.decoder(["Ġthe"])([*reply, 0]) == tokenizer.decoder(["<no such token>"])([*reply, 0]) == TEXT


def test_the_bytes_of_all_tokens_make_the_text(tokenizer: Tokenizer, reply: list[int]) -> None:
    assert b"".join(tokenizer.token_bytes(token) for token in reply) == TEXT.encode()


def test_byte_tokens_and_word_marks_have_their_bytes(byte_fallback: Tokenizer) -> None:
    spelled = {byte_fallback.token_bytes(token) for token in range(byte_fallback.size)}
    assert {b"\xe6", b" the", "é".encode(), b"</s>"} <= spelled


async def test_a_long_text_is_encoded_like_a_short_one(tokenizer: Tokenizer) -> None:
    text = TEXT * (INLINE_CHARACTERS // len(TEXT) + 1)
    assert await tokenizer.encode(text, special=False) == tokenizer.encode_now(text, special=False)


async def test_the_loop_turns_while_a_long_text_is_encoded(tokenizer: Tokenizer) -> None:
    encoding = asyncio.create_task(tokenizer.encode("hello " * 300_000, special=False))
    turns = 0
    while not encoding.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > LEAST_TURNS


@given(st.lists(st.characters(codec="utf-8") | st.sampled_from([" InferenceService", "<|assistant|>", "   "])))
def test_no_text_has_fewer_tokens_than_its_bound(parts: list[str]) -> None:
    text = "".join(parts)
    assert 0 <= DEMO.least(text) <= len(DEMO.encode_now(text, special=False))


def test_the_bound_is_met_by_the_longest_token() -> None:
    assert DEMO.least(" InferenceService" * 50) == 50


def test_a_bound_counts_an_added_token_in_bytes() -> None:
    inner = tokenizers.Tokenizer.from_str((demo.FOLDER / "tokenizer.json").read_text())
    inner.add_tokens(["漢" * 20])
    assert Tokenizer(inner, {}).least("漢" * 40) == 2


@pytest.mark.parametrize("shrink", sorted(SHRINKING))
def test_a_tokenizer_that_may_drop_text_has_no_bound(shrink: str) -> None:
    inner = tokenizers.Tokenizer.from_str((demo.FOLDER / "tokenizer.json").read_text())
    SHRINKING[shrink](inner)
    assert Tokenizer(inner, {}).least("hello " * 1000) == 0


def test_word_pieces_have_no_bound(byte_fallback: Tokenizer) -> None:
    assert byte_fallback.least("hello " * 1000) == 0


def test_special_token_names_come_from_either_form(folder: Path) -> None:
    shutil.copy(demo.FOLDER / "tokenizer.json", folder)
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None, "model_max_length": 5}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(folder).special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_special_token_names_come_from_older_folders_and_the_models_own_too(folder: Path) -> None:
    shutil.copy(demo.FOLDER / "tokenizer.json", folder)
    config = {"bos_token": None, "extra_special_tokens": {"image_token": "<img>"}}
    (folder / "special_tokens_map.json").write_text(json.dumps({"bos_token": {"content": "<s>"}, "eos_token": "</s>"}))
    for known, expected in (({}, {"bos_token": "<s>", "eos_token": "</s>"}), ({"added_tokens_decoder": {}}, {})):
        (folder / "tokenizer_config.json").write_text(json.dumps(config | known))
        assert Tokenizer.load(folder).special_tokens == expected | {"image_token": "<img>"}


def test_a_folder_without_a_tokenizer_is_named(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"tokenizer\.json: cannot be read"):
        Tokenizer.load(folder)


def test_a_pipe_in_place_of_a_tokenizer_is_named_and_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "tokenizer.json")
    with pytest.raises(InvalidInput, match=r"tokenizer\.json: cannot be read .*it is no regular file"):
        Tokenizer.load(folder)


def test_a_broken_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(InvalidInput, match=r"tokenizer\.json: is not a tokenizer"):
        Tokenizer.load(folder)


@pytest.mark.parametrize("content", ["{", "[]"])
def test_broken_settings_are_named(folder: Path, content: str) -> None:
    (folder / "tokenizer_config.json").write_text(content)
    with pytest.raises(InvalidInput, match=r"tokenizer_config\.json"):
        Tokenizer.load(folder)
