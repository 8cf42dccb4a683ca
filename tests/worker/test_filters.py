"""Output filters: judged whole however text is cut, bounded, open or closed when they fail, and over HTTP."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI
from tests.every import cases
from tests.worker.conftest import TEXT
from tests.worker.harness import Rig, eventually, listening, openai_client, resuming, running, settings, text_of
from tests.worker.scripted_engine import Script

from paceline_core.errors import Code, InvalidInput, RequestError
from paceline_core.launch import invalid_filters
from paceline_core.launch.unsupported import FILTERS
from paceline_core.objects import InferenceService, resolve
from paceline_core.objects import read as read_object
from paceline_workers.server.app import create_app
from paceline_workers.server.filters.registry import KNOWN, read
from paceline_workers.server.filters.runner import HELD_LIMIT, FilterResult, FilterRunner, Filters, OutputFilter
from paceline_workers.server.filters.words import WordList, words
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
PARTS = ["cat", "flap", "jack", "CAT", " ", " ", "s", "_", "a", "naï", "ve", "İ", "."]
LISTED = ["cat", "cat flap", "flap jack", "naïve", "a"]


def filtered(judge: OutputFilter, pieces: list[str], failure: Any = "closed") -> str:
    filters = Filters([FilterRunner("one", failure, judge)])
    return "".join([*(filters.feed(piece) for piece in pieces), filters.feed("", last=True)])


def cut(text: str, places: list[int]) -> list[str]:
    bounds = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(bounds)]


@cases(
    ("text", "told"),
    [
        ("the cat sat", "the # sat"),
        ("Cats, CAT, concat", "Cats, #, concat"),
        ("cat flap jack", "# jack"),
        ("cat fla jack", "# fla jack"),
        ("flap cat_ cat", "flap cat_ #"),
        ("NAÏVE a", "# #"),
        ("İcat cat", "İcat #"),
        ("", ""),
    ],
)
def test_listed_words_are_replaced_whole_and_the_longest_first(text: str, told: str) -> None:
    assert filtered(WordList(LISTED, "#")(), [text]) == told
    assert filtered(WordList(LISTED, "#")(), list(text)) == told


@given(
    st.lists(
        st.sampled_from(["cat", "flap", "jack", "CAT", " ", " ", "s", "_", "a", "naï", "ve", "İ", "."]), max_size=12
    ),
    st.lists(st.integers(0, 60), max_size=8),
    st.sampled_from(["#", None]),
)
def test_what_passes_does_not_depend_on_how_text_is_cut(parts: list[str], places: list[int], replacement: Any) -> None:
    text = "".join(parts)
    assert filtered(WordList(LISTED, replacement)(), cut(text, places)) == filtered(
        WordList(LISTED, replacement)(), [text]
    )


@given(st.lists(st.sampled_from(["cat", "flap", " ", "x"]), max_size=12), st.lists(st.integers(0, 40), max_size=8))
def test_nothing_is_held_that_cannot_become_a_word(parts: list[str], places: list[int]) -> None:
    filters, fed, told = Filters([FilterRunner("one", "closed", WordList(["cat flap"], "cat flap")())]), 0, 0
    for piece in cut("".join(parts), places):
        fed, told = fed + len(piece), told + len(filters.feed(piece))
        assert fed - told <= len("cat flap")


def test_the_first_listed_word_ends_the_text() -> None:
    filters = Filters(
        [
            FilterRunner("one", "closed", WordList(["cat"], None)()),
            FilterRunner("two", "closed", WordList(["the"], "#")()),
        ]
    )
    assert "".join(map(filters.feed, ["the c", "at", " sat"])) == "# "
    assert filters.ended
    assert filters.feed("more", last=True) == ""


def fails(text: str, *, last: bool) -> FilterResult:
    if "b" in text:
        raise ZeroDivisionError("an inner secret")
    return FilterResult("", held=0 if last else len(text))


def test_a_filter_that_fails_open_lets_all_pass_that_it_held() -> None:
    assert filtered(fails, ["aa", "ab", "c"], "open") == "aaabc"


def test_a_filter_that_fails_closed_ends_the_answer_without_its_words() -> None:
    with pytest.raises(RequestError, match="filter `one` failed") as caught:
        filtered(fails, ["aa", "ab", "c"])
    assert caught.value.code is Code.INTERNAL_ERROR
    assert "secret" not in caught.value.message


def test_a_filter_that_holds_without_bound_has_failed() -> None:
    def holds(text: str, *, last: bool) -> FilterResult:
        return FilterResult("", held=len(text))

    with pytest.raises(RequestError):
        filtered(holds, ["x" * (HELD_LIMIT + 1)])
    with pytest.raises(RequestError):
        filtered(holds, ["x"])
    assert filtered(holds, ["x" * HELD_LIMIT, "y"], "open") == "x" * HELD_LIMIT + "y"


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({}, "f.words"),
        ({"words": " , "}, "f.words"),
        ({"words": "a", "action": "burn"}, "f.action"),
        ({"words": "a", "colour": "red"}, "f.colour"),
    ],
)
def test_wrong_settings_are_named(config: dict[str, str], field: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        words(config, "f")
    assert caught.value.field == field


NAMES = st.sampled_from(["words", "action", "replacement", "colour"])
VALUES = st.text("cat, ,") | st.sampled_from(["replace", "end", "burn"])


def manifest(**spec: Any) -> dict[str, Any]:
    pools = [{"name": "main", "accelerator": "cpu"}]
    return {"metadata": {"name": "chat"}, "spec": {"model": {"source": "builtin://demo"}, "pools": pools, **spec}}


@given(st.dictionaries(NAMES, VALUES))
def test_what_a_manifest_is_refused_for_and_what_a_worker_refuses_is_the_same(config: dict[str, str]) -> None:
    service = resolve(
        read_object(InferenceService, manifest(filters=[{"name": "words", "stage": "output", "config": config}]))
    )
    with pytest.raises(InvalidInput) if list(invalid_filters(service)) else contextlib.nullcontext():
        words(config, "f")


def test_manifests_may_name_the_filters_that_are_there() -> None:
    assert set(FILTERS) == KNOWN.keys()


def test_an_unknown_filter_is_named() -> None:
    with pytest.raises(InvalidInput, match=r"filters\[0\]\.name: there is no filter 'pii'"):
        read(settings(filters=[{"name": "pii"}]).filters)


def configured(**config: str) -> list[dict[str, Any]]:
    return [{"name": "words", "config": config}]


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply), folder=folder, filters=configured(words="TTFT, naïve")) as rig:
        yield rig


@pytest.fixture
async def client(rig: Rig) -> AsyncIterator[AsyncOpenAI]:
    async with listening(rig) as address, openai_client(address) as client:
        yield client


TOLD = TEXT.replace("TTFT", "***").replace("naïve", "***")


async def test_the_official_client_gets_the_filtered_text(client: AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(**HELLO)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (TOLD, "stop")
    told = [
        chunk.choices[0].delta.content or ""
        async for chunk in await client.chat.completions.create(**HELLO, stream=True)
    ]
    assert "".join(told) == TOLD
    texts = await client.completions.create(model="chat", prompt=["a", "b"], n=2, max_tokens=100)
    assert [choice.text for choice in texts.choices] == [TOLD] * 4


async def test_log_probabilities_would_tell_and_are_refused(rig: Rig) -> None:
    response = await rig.http.post(CHAT, json=HELLO | {"logprobs": True})
    assert (response.status_code, response.json()["error"]["param"]) == (400, "logprobs")


async def test_a_stream_that_a_filter_ends_says_so_and_frees_the_engine(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    ending = configured(words="TTFT", action="end")
    async with running(Script(reply=reply * 100, log=str(log)), folder=folder, filters=ending) as rig:
        async with listening(rig) as address, openai_client(address) as client:
            chunks = [chunk async for chunk in await client.chat.completions.create(**HELLO, stream=True)]
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == TEXT[: TEXT.index("TTFT")]
        assert chunks[-1].choices[0].finish_reason == "content_filter"
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])
        metrics = (await rig.http.get("/metrics")).text.splitlines()
    counts = [line for line in metrics if line.startswith("paceline_worker_") and line.endswith(" 1.0")]
    assert any('finish="content_filter"' in line for line in counts)
    assert any('outcome="ok"' in line for line in counts)


async def test_a_resumed_stream_is_filtered_as_if_it_were_one(rig: Rig, reply: list[int], tokenizer: Tokenizer) -> None:
    asked = HELLO | {"stream": True}
    for told in range(len(reply)):
        content, headers = resuming(asked, {"ids": reply[:told]})
        rest = (await rig.http.post(CHAT, content=content, headers={**rig.gateway_headers, **headers})).content
        assert TOLD.endswith(text_of(rest))
        assert len(text_of(rest)) >= len(TEXT) - len(tokenizer.decode(reply[:told])) - len("naïve")


@pytest.mark.parametrize("stream", [False, True])
async def test_a_filter_that_fails_closed_is_an_answer(rig: Rig, stream: bool) -> None:
    def breaks(text: str, *, last: bool) -> FilterResult:
        if "TTFT" in text:
            raise ZeroDivisionError("an inner secret")
        return FilterResult(text[:9], held=max(len(text) - 9, 0))

    parts = rig.worker.parts
    model = replace(parts.model, filters=lambda: Filters([FilterRunner("broken", "closed", breaks)]))
    app = create_app(replace(rig.worker, parts=replace(parts, model=model)))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://worker") as http:
        response = await http.post(CHAT, json=HELLO | {"stream": stream})
    assert response.status_code in {500, 200 if stream else 500}  # text may have been told before
    assert "output filter `broken` failed" in response.text
    assert "secret" not in response.text
    assert "TTFT" not in response.text
