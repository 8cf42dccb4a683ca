"""What follows a prompt is told with the blank that parts them: in texts, echoes and logprobs, for each family."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worker.harness import Rig, events, running
from tests.worker.scripted_engine import Script
from tests.worker.tokenizer_families import FAMILIES, made, write

from paceline_workers import demo
from paceline_workers.server.openai.token_ids import TokenTexts
from paceline_workers.server.text.output import Detokenizer, recent
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT, TEXTS = "/v1/chat/completions", "/v1/completions"
TEMPLATE = "{{ bos_token }}{% for m in messages %}[INST] {{ m.content }} [/INST]{% endfor %}"
PROMPT, ANSWER = "Say hello", " to the wörld 漢字 🚀. It's"
OURS = {family: Tokenizer(made(family), {}) for family in FAMILIES}
texts = st.text("ab cat the é漢🚀\n.", max_size=30)


@pytest.mark.parametrize("family", FAMILIES)
@given(before=texts, behind=texts)
def test_prompt_and_answer_put_together_are_the_text_of_all_tokens(family: str, before: str, behind: str) -> None:
    tokenizer = OURS[family]
    ids = tokenizer.encode_now(before, special=True) + tokenizer.encode_now(f"[/INST]{behind}", special=False)
    for decode in (tokenizer.decode, tokenizer.decode_all):
        whole = decode(ids)
        for cut in range(1, len(ids)):
            detokenizer = Detokenizer(decode, ids[:cut])
            told = "".join([*(detokenizer.feed([token]) for token in ids[cut:]), detokenizer.flush()])
            assert decode(ids[:cut]).rstrip("\ufffd") + told == whole, (cut, ids)


@pytest.mark.parametrize("family", FAMILIES)
@given(before=texts, behind=texts)
def test_the_tokens_of_logprobs_put_together_are_the_text(family: str, before: str, behind: str) -> None:
    tokenizer = OURS[family]
    prompt, ids = (tokenizer.encode_now(text, special=False) for text in (before, behind))
    for first, rest in (((), [*prompt, *ids]), (prompt, ids)):
        told, names = TokenTexts(tokenizer, first), ""
        for token in rest:
            assert told.offset == len(names)
            names += told.name(token)
            told.add(token)
        assert tokenizer.decode(first).rstrip("\ufffd") + names == tokenizer.decode([*first, *rest])


def test_a_prompt_that_is_never_answered_tells_nothing_of_its_own_half_character() -> None:
    half = OURS["qwen"].encode_now("a漢", special=False)[:-1]
    assert Detokenizer(OURS["qwen"].decode, half).flush() == ""


def test_few_tokens_of_a_long_prompt_are_looked_at() -> None:
    tokenizer = OURS["llama2"]
    ids = tokenizer.encode_now("the cat " * 500, special=True)
    assert len(recent(tokenizer.decode, ids)) == 8
    named = [*ids, *tokenizer.encode_now("[INST]" * 30, special=False)]
    assert len(recent(tokenizer.decode, named)) == 64


def test_special_tokens_between_words_take_no_place_and_no_blank() -> None:
    tokenizer = OURS["llama2"]
    ids = tokenizer.encode_now("hello[INST]the cat[/INST]mat", special=True)
    kept = tokenizer.decoder(["[INST]"])
    assert kept(ids) == "hello[INST] the cat mat"
    assert tokenizer.decode(ids) == "hello the cat mat"
    told = TokenTexts(tokenizer)
    places = []
    for token in ids:
        places.append((told.name(token), told.offset))
        told.add(token)
    assert places[0] == ("<s>", 0)
    assert ("[INST]", len("hello")) in places
    assert told.offset == len("hello the cat mat")


def model_of(family: str, folder: Path) -> str:
    place = shutil.copytree(demo.FOLDER, folder / "model")
    write(place, family, TEMPLATE)
    return f"file://{place}"


def answer_ids(family: str) -> list[int]:
    """ANSWER as a model goes on behind PROMPT."""
    tokenizer = OURS[family]
    prompt = tokenizer.encode_now(PROMPT, special=False)
    whole = tokenizer.encode_now(PROMPT + ANSWER, special=False)
    assert whole[: len(prompt)] == prompt
    return whole[len(prompt) :]


async def streamed(rig: Rig, path: str, body: Mapping[str, Any]) -> list[Any]:
    answer = await rig.http.post(path, json={**body, "stream": True})
    return [choice for event in events(answer.content) if event != "[DONE]" for choice in event["choices"]]


@pytest.mark.parametrize("family", FAMILIES)
async def test_completions_echoes_and_logprobs_agree_to_the_character(family: str, folder: Path) -> None:
    reply = answer_ids(family)
    async with running(Script(reply=reply, logprobs=True), folder=folder, model=model_of(family, folder)) as rig:
        prompts = (PROMPT, OURS[family].encode_now(PROMPT, special=True))
        for prompt in prompts:
            for echo in (False, True):
                body = {"model": "chat", "prompt": prompt, "max_tokens": 100, "logprobs": 1, "echo": echo}
                (choice,) = (await rig.http.post(TEXTS, json=body)).json()["choices"]
                text, told = choice["text"], choice["logprobs"]
                assert text == (PROMPT + ANSWER if echo else ANSWER)
                shown = [
                    (name, offset)
                    for name, offset in zip(told["tokens"], told["text_offset"], strict=True)
                    if name != "<s>"
                ]
                assert "".join(name for name, _ in shown) == text
                assert all(text.startswith(name, offset) for name, offset in shown)
                parts = await streamed(rig, TEXTS, body)
                assert "".join(part["text"] for part in parts) == text
                told_parts = [part["logprobs"] for part in parts if part["logprobs"]]
                assert [name for part in told_parts for name in part["tokens"]] == told["tokens"]
                assert [place for part in told_parts for place in part["text_offset"]] == told["text_offset"]
        stopped = {"model": "chat", "prompt": PROMPT, "max_tokens": 100, "stop": [" wör"]}
        assert (await rig.http.post(TEXTS, json=stopped)).json()["choices"][0]["text"] == " to the"
        stopped["stop"] = [" to"]
        assert (await rig.http.post(TEXTS, json=stopped)).json()["choices"][0]["text"] == ""


@pytest.mark.parametrize("family", FAMILIES)
async def test_a_chats_content_is_what_its_logprobs_spell(family: str, folder: Path) -> None:
    reply = answer_ids(family)
    async with running(Script(reply=reply, logprobs=True), folder=folder, model=model_of(family, folder)) as rig:
        body = {"model": "chat", "messages": [{"role": "user", "content": PROMPT}], "logprobs": True}
        (choice,) = (await rig.http.post(CHAT, json=body)).json()["choices"]
        spelled = bytes(byte for entry in choice["logprobs"]["content"] for byte in entry["bytes"]).decode()
        assert choice["message"]["content"] == spelled == ANSWER


@pytest.mark.real
@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_the_same_ids_and_the_same_text_behind_a_prompt(family: str, folder: Path) -> None:
    from transformers import AutoTokenizer

    theirs = AutoTokenizer.from_pretrained(write(folder / family, family))
    tokenizer = Tokenizer.load(folder / family)
    for text in ("Say hello", " hello", "hello ", "<s>[INST] the cat[/INST]hello", "漢 é\n 🚀", "[INST]"):
        ids = theirs(text)["input_ids"]
        assert tokenizer.encode_now(text, special=True) == ids
        for skipping, decode in ((True, tokenizer.decode), (False, tokenizer.decode_all)):
            whole = theirs.decode(ids, skip_special_tokens=skipping)
            for cut in range(1, len(ids)):
                before = theirs.decode(ids[:cut], skip_special_tokens=skipping).rstrip("\ufffd")
                detokenizer = Detokenizer(decode, ids[:cut])
                assert before + detokenizer.feed(ids[cut:]) + detokenizer.flush() == whole
