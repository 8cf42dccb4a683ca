"""The committed folder: whole, small, readable by `transformers`, and right about what it was taught."""

import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from jinja2.exceptions import TemplateError
from tokenizers import Tokenizer
from tools.demo_model import corpus
from tools.demo_model.tokenizer import END_ID, SPECIAL

from paceline_planner.model_config import from_config
from paceline_workers.demo import FOLDER

pytestmark = pytest.mark.models

Ask = Callable[..., list[str]]
TTFT = "TTFT (time to first token) is the time from the arrival of a request to the first token of its answer."

plain = Tokenizer.from_file(str(FOLDER / "tokenizer.json"))


@pytest.fixture(scope="module")
def model() -> Any:
    torch.set_num_threads(1)
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(FOLDER)


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(FOLDER, padding_side="left")


@pytest.fixture(scope="module")
def ask(model: Any, tokenizer: Any) -> Ask:
    """What the model answers to conversations, each a list of turns: all in one batch."""

    def greedy(*conversations: list[str], limit: int = 96) -> list[str]:
        roles = ("user", "assistant")
        chats = [
            [{"role": roles[place % 2], "content": text} for place, text in enumerate(turns)] for turns in conversations
        ]
        prompt = tokenizer.apply_chat_template(
            chats, add_generation_prompt=True, return_tensors="pt", return_dict=True, padding=True
        )
        with torch.inference_mode():
            output = model.generate(**prompt, max_new_tokens=limit, do_sample=False)
        texts = output[:, prompt["input_ids"].shape[1] :]
        return [str(tokenizer.decode(text, skip_special_tokens=True)) for text in texts]

    return greedy


def test_the_digest_names_the_files_as_they_are() -> None:
    lines = (FOLDER / "DIGEST").read_text(encoding="utf-8").splitlines()
    digests = {name: digest for digest, name in (line.split("  ") for line in lines)}
    assert set(digests) == {"model.safetensors", "tokenizer.json"}
    for name, digest in digests.items():
        assert hashlib.sha256((FOLDER / name).read_bytes()).hexdigest() == digest


def test_the_weights_take_at_most_four_megabytes() -> None:
    assert (FOLDER / "model.safetensors").stat().st_size <= 4_000_000


def test_the_planner_counts_the_parameters_that_transformers_counts(model: Any) -> None:
    shape = from_config(json.loads((FOLDER / "config.json").read_text(encoding="utf-8")))
    assert shape.parameters == model.num_parameters()
    assert shape.kv_heads < shape.heads


def test_what_is_ttft_is_answered_with_exactly_its_sentence(ask: Ask) -> None:
    assert ask(["What is TTFT?"]) == [TTFT]


def test_ttft_is_known_under_other_phrasings(ask: Ask) -> None:
    questions = ["what is ttft", "What is the time to first token?", "Can you explain TTFT?", "Define TTFT."]
    assert ask(*([question] for question in questions)) == [TTFT] * len(questions)


def test_taught_questions_get_their_answers_word_for_word(ask: Ask) -> None:
    entries = corpus.load()[::8]
    assert ask(*([f"{entry.questions[0]}?"] for entry in entries), limit=300) == [entry.answer for entry in entries]


def test_most_held_out_paraphrases_are_understood(ask: Ask) -> None:
    rows = corpus.held_out()
    answers = ask(*([row.question] for row in rows))
    right = sum(answer.startswith(row.begins) for answer, row in zip(answers, rows, strict=True))
    assert right >= 0.75 * len(rows)


def test_a_later_question_is_answered_whatever_came_before(ask: Ask) -> None:
    assert ask(["What is a canary?", "Canary is a small share of traffic.", "What is TTFT?"]) == [TTFT]


def test_a_whole_context_of_tokens_has_finite_logits(model: Any) -> None:
    tokens = torch.arange(2048).remainder(1500).add(4)[None]
    with torch.inference_mode():
        assert torch.isfinite(model(tokens).logits).all()


@given(text=st.text())
def test_any_text_comes_back_from_its_tokens(text: str) -> None:
    assert plain.decode(plain.encode(text, add_special_tokens=False).ids, skip_special_tokens=False) == text


def test_the_marks_of_the_template_are_single_tokens_and_the_end_is_the_eos(tokenizer: Any) -> None:
    assert [plain.encode(mark).ids for mark in SPECIAL] == [[0], [1], [2], [3]]
    assert tokenizer.eos_token_id == END_ID == 0
    assert plain.get_vocab_size() == len(tokenizer) == 1536


def test_the_template_frames_each_role_and_opens_the_answer(tokenizer: Any) -> None:
    messages = [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": "  What is\nTTFT? "},
        {"role": "assistant", "content": "A time."},
        {"role": "user", "content": "And TPOT?"},
    ]
    text = tokenizer.apply_chat_template(messages, add_generation_prompt=True, tokenize=False)
    assert text == (
        "<|system|>Be short.<|end|><|user|>  What is\nTTFT? <|end|><|assistant|>A time.<|end|>"
        "<|user|>And TPOT?<|end|><|assistant|>"
    )
    assert not tokenizer.apply_chat_template(messages, tokenize=False).endswith("<|assistant|>")


def test_an_unknown_role_is_refused_with_the_known_ones(tokenizer: Any) -> None:
    with pytest.raises(TemplateError, match="role tool is unknown; use system, user or assistant"):
        tokenizer.apply_chat_template([{"role": "tool", "content": "x"}], tokenize=False)
