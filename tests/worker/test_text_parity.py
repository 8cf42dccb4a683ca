"""Prompt and text as `transformers` makes them from the same folder."""

from typing import Any

import pytest
from tests.worker.conftest import TEXT

from paceline_core.clock import ManualClock
from paceline_workers import demo
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def theirs() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(demo.FOLDER)


def test_a_chat_has_the_same_prompt_ids(theirs: Any, tokenizer: Tokenizer) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}]
    ours = ChatTemplate.load(demo.FOLDER, tokenizer.special_tokens, ManualClock().utc)
    assert ours is not None
    rendered = ours.render(messages)
    assert rendered == theirs.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    expected = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=True)["input_ids"]
    assert tokenizer.encode_now(rendered, special=False) == expected


def test_text_has_the_same_ids_and_ids_the_same_text(theirs: Any, tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode_now(TEXT, special=True)
    assert ids == theirs(TEXT)["input_ids"]
    assert tokenizer.decode([*ids, 0]) == theirs.decode([*ids, 0], skip_special_tokens=True)
