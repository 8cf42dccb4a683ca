"""`/v1/score` and `/v1/rerank` behind an engine whose vectors tell what it was given."""

import math
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import Rig, running
from tests.worker.scripted_engine import Script

from paceline_core.errors import Code, RequestError
from paceline_workers.messages import Tokens
from paceline_workers.server.handlers.embed import AT_ONCE
from paceline_workers.server.openai.scoring import PAIRS, ScoringJob
from paceline_workers.server.text.tokenizer import Tokenizer

SCORE, RERANK = "/v1/score", "/v1/rerank"
SIZE = 5
QUERY = "What is a promise?"
DOCUMENTS = ["hello there", "a promise on TTFT", "TTFT", "hello there"]
SCORED: dict[str, Any] = {"model": "chat", "text_1": QUERY, "text_2": DOCUMENTS}
RANKED: dict[str, Any] = {"model": "chat", "query": QUERY, "documents": DOCUMENTS}


@pytest.fixture
async def rig(folder: Path) -> AsyncIterator[Rig]:
    async with running(Script(embedding=SIZE), folder=folder) as rig:
        yield rig


def cosine(one: Sequence[int], other: Sequence[int]) -> float:
    """Of the vectors that the engine makes of these ids."""
    a, b = ([float(number) for number in [len(ids), *ids, *[0] * SIZE][:SIZE]] for ids in (one, other))
    return sum(x * y for x, y in zip(a, b, strict=True)) / math.hypot(*a) / math.hypot(*b)


def expected(tokenizer: Tokenizer, queries: Sequence[str], texts: Sequence[str]) -> list[float]:
    ids = {text: tokenizer.encode_now(text, special=True) for text in (*queries, *texts)}
    alone = list(queries) * len(texts) if len(queries) == 1 else queries
    return [cosine(ids[query], ids[text]) for query, text in zip(alone, texts, strict=True)]


def count(tokenizer: Tokenizer, *texts: str) -> int:
    return sum(len(tokenizer.encode_now(text, special=True)) for text in texts)


async def test_a_query_is_scored_with_each_text_in_their_order(rig: Rig, tokenizer: Tokenizer) -> None:
    answer = (await rig.http.post(SCORE, json=SCORED)).json()
    scores = [entry.pop("score") for entry in answer["data"]]
    assert scores == pytest.approx(expected(tokenizer, [QUERY], DOCUMENTS))
    assert answer["data"] == [{"index": index, "object": "score"} for index in range(len(DOCUMENTS))]
    assert answer["id"].startswith("score-")
    assert answer["created"] > 1_700_000_000
    assert (answer["object"], answer["model"]) == ("list", "chat")
    tokens = count(tokenizer, QUERY, *DOCUMENTS)
    assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens, "completion_tokens": 0}


@pytest.mark.parametrize("names", PAIRS)
async def test_the_lists_go_by_each_of_vllms_names(rig: Rig, tokenizer: Tokenizer, names: tuple[str, str]) -> None:
    several = ["TTFT", "TTFT"], ["TTFT", "a promise"]
    for path in (SCORE, "/score"):
        for given, plain in (
            (("TTFT", "hello there"), (["TTFT"], ["hello there"])),
            (("TTFT", ["hello there"]), (["TTFT"], ["hello there"])),
            (several, several),
            (({"text": "TTFT", "image": None}, [{"text": "TTFT"}, "a promise"]), (["TTFT"], ["TTFT", "a promise"])),
        ):
            body = {"model": "chat", **dict(zip(names, given, strict=True))}
            data = (await rig.http.post(path, json=body)).json()["data"]
            assert [entry["score"] for entry in data] == pytest.approx(expected(tokenizer, *plain))


async def test_documents_are_ranked_the_best_first_and_of_equal_ones_the_earlier(
    rig: Rig, tokenizer: Tokenizer
) -> None:
    scores = expected(tokenizer, [QUERY], DOCUMENTS)
    order = sorted(range(len(DOCUMENTS)), key=lambda index: (-round(scores[index], 9), index))
    assert order.index(0) + 1 == order.index(3)
    for path in (RERANK, "/v2/rerank", "/rerank"):
        answer = (await rig.http.post(path, json=RANKED)).json()
        results = answer["results"]
        assert [result["index"] for result in results] == order
        assert [result["document"] for result in results] == [{"text": DOCUMENTS[index]} for index in order]
        assert [result["relevance_score"] for result in results] == pytest.approx([scores[index] for index in order])
        assert answer["id"].startswith("rerank-")
        tokens = count(tokenizer, QUERY, *DOCUMENTS)
        assert answer["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
        assert answer["model"] == "chat"


async def test_top_n_cuts_the_results_and_documents_may_stay_away(rig: Rig) -> None:
    whole = (await rig.http.post(RERANK, json=RANKED)).json()["results"]
    for top_n, left in ((0, 4), (None, 4), (2, 2), (4, 4), (10**18, 4)):
        body = RANKED | {"top_n": top_n, "return_documents": False}
        results = (await rig.http.post(RERANK, json=body)).json()["results"]
        wanted = [{name: value for name, value in result.items() if name != "document"} for result in whole[:left]]
        assert results == wanted


async def test_objects_a_text_alone_and_a_query_as_an_object_rank_alike(rig: Rig) -> None:
    plain = (await rig.http.post(RERANK, json=RANKED)).json()["results"]
    objects = {"query": {"text": QUERY}, "documents": [{"text": text, "title": "one"} for text in DOCUMENTS]}
    assert (await rig.http.post(RERANK, json=RANKED | objects)).json()["results"] == plain
    alone = (await rig.http.post(RERANK, json=RANKED | {"documents": "hello there"})).json()["results"]
    assert [result["document"] for result in alone] == [{"text": "hello there"}]


@pytest.mark.parametrize("several", [False, True])
async def test_more_texts_than_one_turn_takes_are_all_scored(rig: Rig, tokenizer: Tokenizer, *, several: bool) -> None:
    texts = [f"{'a ' * (place % 7)}promise {place}" for place in range(2 * AT_ONCE + 3)]
    queries = [f"{place} TTFT" for place in range(len(texts))] if several else [QUERY]
    data = (await rig.http.post(SCORE, json=SCORED | {"text_1": queries, "text_2": texts})).json()["data"]
    assert [entry["score"] for entry in data] == pytest.approx(expected(tokenizer, queries, texts))


async def test_queries_and_documents_are_cut_to_their_own_limits(rig: Rig, tokenizer: Tokenizer) -> None:
    ids = {text: tokenizer.encode_now(text, special=True) for text in (QUERY, *DOCUMENTS)}
    for fields, query, document in (
        ({"max_tokens_per_query": 2}, 2, 100),
        ({"max_tokens_per_doc": 1}, 100, 1),
        ({"max_tokens_per_query": 3, "max_tokens_per_doc": 2}, 3, 2),
        ({"truncate_prompt_tokens": 2, "truncation_side": "right"}, 2, 2),
    ):
        answer = (await rig.http.post(RERANK, json=RANKED | fields)).json()
        cut = {text: own[: query if text == QUERY else document] for text, own in ids.items()}
        for result in answer["results"]:
            wanted = cosine(cut[QUERY], cut[DOCUMENTS[result["index"]]])
            assert result["relevance_score"] == pytest.approx(wanted), fields
        assert answer["usage"]["total_tokens"] == sum(len(cut[text]) for text in (QUERY, *DOCUMENTS))
    long = RANKED | {"documents": ["hello " * 4000], "max_tokens_per_doc": 7}
    assert (await rig.http.post(RERANK, json=long)).status_code == 200


@pytest.mark.parametrize(
    ("path", "fields", "param", "words"),
    [
        (SCORE, {"text_1": None}, "text_1", "`text_1` and `text_2`"),
        (SCORE, {"text_2": None}, "text_2", "`text_1` and `text_2`"),
        (SCORE, {"text_1": None, "text_2": None}, "text_1", "`queries` and `documents`"),
        (SCORE, {"text_1": None, "text_2": None, "items": "a"}, "queries", "`queries`"),
        (SCORE, {"documents": "a"}, "documents", "`text_1` and `text_2`"),
        (SCORE, {"text_1": None, "queries": "a"}, "queries", "`text_1` and `text_2`"),
        (SCORE, {"text_1": ["a"] * 3}, "text_1", "holds 3 texts and `text_2` 4"),
        (SCORE, {"text_1": []}, "text_1", "from 1 to 2048"),
        (SCORE, {"text_2": ["a"] * 2049}, "text_2", "from 1 to 2048"),
        (SCORE, {"text_2": [5, 6]}, "text_2", "must be a text"),
        (SCORE, {"text_2": 5}, "text_2", "must be a text"),
        (SCORE, {"text_2": [["a"]]}, "text_2", "must be a text"),
        (SCORE, {"text_2": {"text": 5}}, "text_2", "must be a text"),
        (SCORE, {"text_1": {"content": [{"type": "image_url"}]}}, "text_1", "must be a text"),
        (SCORE, {"text_2": ["a", ""]}, "text_2[1]", "at least one token"),
        (SCORE, {"text_1": ["a", "", "b", "c"]}, "text_1[1]", "at least one token"),
        (SCORE, {"instruction": "find"}, "instruction", "not supported"),
        (RERANK, {"query": None}, "query", "is required"),
        (RERANK, {"query": [QUERY]}, "query", "must be one text"),
        (RERANK, {"query": ""}, "query", "at least one token"),
        (RERANK, {"query": 7}, "query", "must be one text"),
        (RERANK, {"documents": None}, "documents", "is required"),
        (RERANK, {"documents": []}, "documents", "from 1 to 2048"),
        (RERANK, {"documents": ["a"] * 2049}, "documents", "from 1 to 2048"),
        (RERANK, {"documents": [{}]}, "documents", "must be a text"),
        (RERANK, {"documents": [{"text": ""}]}, "documents", "at least one token"),
        (RERANK, {"documents": ["a", "hello " * 4000]}, "documents[1]", "maximum context length"),
        (RERANK, {"top_n": -1}, "top_n", "must be 0 or more"),
        (RERANK, {"top_n": "2"}, "top_n", "must be a whole number"),
        (RERANK, {"top_n": 1.5}, "top_n", "must be a whole number"),
        (RERANK, {"return_documents": 1}, "return_documents", "must be true or false"),
        (RERANK, {"max_tokens_per_query": -1}, "max_tokens_per_query", "must be 0 or more"),
        (RERANK, {"max_tokens_per_doc": 2048}, "max_tokens_per_doc", "must be below 2048"),
        (RERANK, {"truncate_prompt_tokens": 2048}, "truncate_prompt_tokens", "must be -1, or from 1 to 2047"),
        (RERANK, {"rank_fields": ["title"]}, "rank_fields", "not supported"),
        (RERANK, {"model": "other"}, "model", "does not exist"),
        (RERANK, {"model": None}, "model", "is required"),
    ],
)
async def test_a_wrong_field_is_named(rig: Rig, path: str, fields: dict[str, Any], param: str, words: str) -> None:
    response = await rig.http.post(path, json=(SCORED if path == SCORE else RANKED) | fields)
    error = response.json()["error"]
    assert (response.status_code, error["param"]) == (404 if words == "does not exist" else 400, param)
    assert words in error["message"]


async def test_a_model_without_vectors_is_refused_by_name(folder: Path) -> None:
    async with running(Script(), folder=folder) as rig:
        for path, body in ((SCORE, SCORED), (RERANK, RANKED)):
            error = (await rig.http.post(path, json=body)).json()["error"]
            assert (error["code"], error["param"]) == ("invalid_request", "model")
            assert "emulates its model" in error["message"]


async def test_an_engine_that_fails_is_an_answer(folder: Path) -> None:
    async with running(Script(embedding=SIZE, fault="error", phase="prefill"), folder=folder) as rig:
        response = await rig.http.post(RERANK, json=RANKED)
    assert (response.status_code, response.json()["error"]["code"]) == (500, "engine_failed")


async def test_the_tokens_of_texts_are_counted_and_the_phases_told(rig: Rig, tokenizer: Tokenizer) -> None:
    response = await rig.http.post(RERANK, json=RANKED, headers=rig.gateway_headers)
    assert "prefill;dur=" in response.headers["server-timing"]
    metrics = (await rig.http.get("/metrics")).text.splitlines()
    (counted,) = [line for line in metrics if line.startswith("paceline_worker_tokens_total") and '"input"' in line]
    assert float(counted.rpartition(" ")[2]) == count(tokenizer, QUERY, *DOCUMENTS)


def test_a_vector_of_nothing_is_like_none_and_one_without_numbers_is_a_fault() -> None:
    def scores(*vectors: bytes) -> list[float]:
        job = ScoringJob((), shared=True, written=lambda *_: Tokens("", 0, [], ""))
        job.take([Tokens("", 0, [], "stop", vector=vector) for vector in vectors])
        return job.scores

    one, nothing, nan = b"\0\0\x80\x3f", b"\0" * 4, b"\0\0\xc0\x7f"
    assert scores(one, one, nothing) == [1.0, 0.0]
    with pytest.raises(RequestError) as caught:
        scores(one, nan)
    assert caught.value.code is Code.ENGINE_FAILED
