"""The tokenizer of a model folder, and what is said when the folder is no good."""

import json
import shutil
from pathlib import Path

import pytest
from tests.worker.conftest import TEXT

from paceline_core.errors import InvalidInput
from paceline_workers import demo
from paceline_workers.server.tokenizer import INLINE_CHARACTERS, Tokenizer


def test_text_comes_back_from_its_ids(tokenizer: Tokenizer, reply: list[int]) -> None:
    assert tokenizer.decode(reply) == TEXT


def test_special_tokens_are_left_out_of_the_text(tokenizer: Tokenizer, reply: list[int]) -> None:
    assert tokenizer.decode([*reply, 0]) == TEXT


def test_the_bytes_of_all_tokens_make_the_text(tokenizer: Tokenizer, reply: list[int]) -> None:
    assert b"".join(tokenizer.token_bytes(token) for token in reply) == TEXT.encode()


def test_byte_tokens_and_word_marks_have_their_bytes(byte_fallback: Tokenizer) -> None:
    spelled = {byte_fallback.token_bytes(token) for token in range(byte_fallback.size)}
    assert {b"\xe6", b" the", "é".encode(), b"</s>"} <= spelled


async def test_a_long_text_is_encoded_like_a_short_one(tokenizer: Tokenizer) -> None:
    text = TEXT * (INLINE_CHARACTERS // len(TEXT) + 1)
    assert await tokenizer.encode(text, special=False) == tokenizer.encode_now(text, special=False)


def test_special_token_names_come_from_either_form(folder: Path) -> None:
    shutil.copy(demo.FOLDER / "tokenizer.json", folder)
    config = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "pad_token": None, "model_max_length": 5}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert Tokenizer.load(folder).special_tokens == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_folder_without_a_tokenizer_is_named(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"tokenizer\.json: cannot be read"):
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
