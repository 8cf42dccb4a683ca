"""How long a prompt is expected to be: by its own text, by tenant, whatever pads the body and whoever lies."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.every import cases

from paceline_gateway.request.prompt_size import MESSAGE_TOKENS, PART_TOKENS, PromptSize, measure
from paceline_gateway.services.usage_estimates import (
    BYTES_PER_TOKEN,
    MAX_BYTES_PER_TOKEN,
    MIN_BYTES_PER_TOKEN,
    MIN_WEIGHT,
    TENANTS,
    PromptLengthEstimator,
)

RESPONSES = "/v1/responses"
CHAT, TEXT, EMBED = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
SCORE, RERANK = "/v1/score", "/v1/rerank"
WORDS = "a" * 8000


def taught(*learned: tuple[str, int, int]) -> PromptLengthEstimator:
    """By tenants whose prompts of so many bytes had so many tokens."""
    estimate = PromptLengthEstimator()
    for tenant, size, tokens in learned:
        estimate.learn(PromptSize(size), tokens, tenant)
    return estimate


def chat(*messages: dict[str, Any], **more: Any) -> PromptSize:
    return measure({"model": "m", "messages": list(messages), **more}, CHAT)


def test_it_starts_at_four_bytes_a_token() -> None:
    assert PromptLengthEstimator().tokens(PromptSize(400)) == 100


def test_padded_bodies_change_nobodys_estimate() -> None:
    """Three bodies of a megabyte of padding and a greeting once made 2,000 tokens of everybody cost 1."""
    estimate, asked = PromptLengthEstimator(), {"role": "user", "content": WORDS}
    before = estimate.tokens(chat(asked), "team")
    padded = {"model": "m", "messages": [{"role": "user", "content": "hi", "pad": WORDS}], "pad": "x" * 1_000_000}
    for tenant in ("team", "liar"):
        for _ in range(3):
            estimate.learn(measure(padded, CHAT), 10, tenant)
    for tenant in ("team", "liar", "newcomer"):
        assert estimate.tokens(chat(asked), tenant) >= before


@cases(
    ("body", "path", "prompt"),
    [
        ({"messages": [{"role": "user", "content": "four"}]}, CHAT, PromptSize(4, MESSAGE_TOKENS)),
        ({"messages": [{"role": "user", "content": "語"}]}, CHAT, PromptSize(3, MESSAGE_TOKENS)),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "four"}, "four"]}]},
            CHAT,
            PromptSize(8, MESSAGE_TOKENS),
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": WORDS}}]}]},
            CHAT,
            PromptSize(0, MESSAGE_TOKENS + PART_TOKENS),
        ),
        ({"messages": [{"role": "assistant", "tool_calls": [1, 2]}]}, CHAT, PromptSize(5, MESSAGE_TOKENS)),
        ({"messages": [], "tools": [{"a": 1}]}, CHAT, PromptSize(9, 0)),
        ({"messages": [], "tools": [{"a": 1}], "tool_choice": "none"}, CHAT, PromptSize(0, 0)),
        ({"messages": [], "prompt": WORDS, "input": WORDS}, CHAT, PromptSize(0, 0)),
        ({"messages": "four"}, CHAT, PromptSize(0, 0)),
        ({"messages": [None, 3, {"content": {"a": 1}}]}, CHAT, PromptSize(0, 3 * MESSAGE_TOKENS)),
        ({"prompt": "four", "messages": [{"content": WORDS}]}, TEXT, PromptSize(4)),
        ({"prompt": [1, 2, 3]}, TEXT, PromptSize(0, 3)),
        ({"prompt": [[1, 2], [3]]}, TEXT, PromptSize(0, 3, 2)),
        ({"prompt": ["four", "five!"]}, TEXT, PromptSize(9, 0, 2)),
        ({"prompt": []}, TEXT, PromptSize(0, 0)),
        ({"input": ["four"] * 3}, EMBED, PromptSize(12, 0, 3)),
        ({"text_1": "four", "text_2": ["four", "語"], "input": WORDS}, SCORE, PromptSize(11, 0, 3)),
        (
            {"queries": ["four"], "items": [{"text": "four", "title": WORDS}, {"a": 1}, 3]},
            "/score",
            PromptSize(8, 0, 4),
        ),
        ({"data_1": {"text": "four"}, "data_2": {"a": 1}}, SCORE, PromptSize(4, 0, 2)),
        ({"query": "four", "documents": ["four"] * 3, "text_1": WORDS}, RERANK, PromptSize(16, 0, 4)),
        ({"query": 5}, "/v2/rerank", PromptSize(0, 0)),
        ({}, "/rerank", PromptSize()),
        ({"system": [{"type": "text", "text": "four"}], "messages": []}, "/v1/messages", PromptSize(4)),
        (
            {
                "messages": [
                    {"content": [{"type": "tool_result", "content": "four"}, {"type": "thinking", "thinking": "a"}]}
                ]
            },
            "/v1/messages",
            PromptSize(5, MESSAGE_TOKENS),
        ),
        (
            {"messages": [{"content": [{"type": "tool_use", "input": {}}]}]},
            "/v1/messages",
            PromptSize(9, MESSAGE_TOKENS),
        ),
        ({"instructions": "four", "input": "four", "metadata": WORDS}, RESPONSES, PromptSize(8)),
        (
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "four"}]}]},
            RESPONSES,
            PromptSize(4, MESSAGE_TOKENS),
        ),
        (
            {"input": [{"type": "function_call", "name": "f", "arguments": "{}"}, {"output": "four"}]},
            RESPONSES,
            PromptSize(7, 2 * MESSAGE_TOKENS),
        ),
    ],
)
def test_a_prompt_is_what_its_route_reads_of_a_body(body: dict[str, Any], path: str, prompt: PromptSize) -> None:
    assert measure(body, path) == prompt
    spaced = json.loads(json.dumps(body, indent=8))
    assert measure(spaced, path) == prompt


def test_a_template_of_the_requests_own_may_write_as_much_as_it_likes() -> None:
    asked = chat({"role": "user", "content": "four"}, chat_template="{{ messages * 1000 }}")
    assert asked == PromptSize(4, MESSAGE_TOKENS, 1, unbound=True)
    assert chat(chat_template_kwargs={"preamble": "four"}).text == len('{"preamble":"four"}')


@pytest.mark.parametrize(
    ("path", "field"),
    [
        (CHAT, {"truncate_prompt_tokens": 9}),
        (RERANK, {"truncate_prompt_tokens": -1}),
        (RESPONSES, {"truncation": "auto"}),
    ],
)
def test_a_prompt_that_may_be_cut_teaches_nothing(path: str, field: dict[str, Any]) -> None:
    """It would teach that its bytes are worth a fraction of their tokens."""
    body = {"messages": [{"role": "user", "content": WORDS}], "input": WORDS, "query": WORDS}
    whole, short = measure(body, path), measure(body | field, path)
    assert (whole.truncated, short) == (False, whole._replace(truncated=True))
    estimate = taught(("team", 8000, 2000))
    estimate.learn(short._replace(text=80_000), 9, "team")
    assert estimate.tokens(PromptSize(8000), "team") == 2000


def test_of_a_route_that_is_not_known_all_of_the_body_counts() -> None:
    assert measure({"anything": "four"}, "/v1/other").text == len('{"anything":"four"}')


def test_listed_ids_count_as_they_are_and_teach_nothing() -> None:
    estimate = taught(("team", 8000, 8000))
    ids = measure({"prompt": [5] * 900}, TEXT)
    assert estimate.tokens(ids, "team") == 900
    estimate.learn(ids, 900, "team")
    assert estimate.tokens(PromptSize(8000), "team") == 8000


def test_a_tenants_own_prompts_are_what_its_estimates_come_from() -> None:
    estimate = taught(("prose", 50_000, 10_000), ("signs", 30_000, 20_000))
    assert estimate.tokens(PromptSize(1000), "prose") == 200
    assert estimate.tokens(PromptSize(3000), "signs") == 2000


def test_what_a_template_adds_is_learned_of_short_prompts() -> None:
    estimate = taught(("team", 8000, 2000), *[("team", 40, 40)] * 20)
    assert estimate.tokens(PromptSize(40), "team") == 40
    assert estimate.tokens(PromptSize(8000), "team") == 2030


def test_it_follows_prompts_that_change() -> None:
    estimate = taught(("team", 800_000, 200_000), *[("team", 200_000, 100_000)] * 50)
    assert abs(estimate.tokens(PromptSize(2000), "team") - 1000) < 10


def test_a_newcomer_is_estimated_by_the_median_of_the_others_and_never_below_the_prior() -> None:
    dense = [(f"t{number}", 2000, 1000) for number in range(5)]
    assert taught(*dense).tokens(PromptSize(400), "new") == 200
    liars = [(f"liar{number}", 8000, 1000) for number in range(100)]
    assert taught(*dense, *liars).tokens(PromptSize(400), "new") == 400 / BYTES_PER_TOKEN
    assert taught(*dense, ("liar", 900_000, 900_000)).tokens(PromptSize(400), "new") == 200


def test_only_so_many_tenants_are_remembered() -> None:
    estimate = taught(*[(f"t{number}", 8000, 2000) for number in range(TENANTS + 50)])
    assert len(estimate) == TENANTS


LEARNED = st.lists(
    st.tuples(st.sampled_from(["team", "liar"]), st.integers(0, 10**7), st.integers(0, 10**6), st.integers(1, 40)),
    max_size=30,
)


@given(LEARNED, st.integers(1, 10**7), st.sampled_from(["team", "liar", "new"]))
def test_whatever_is_taught_an_estimate_stays_between_its_bounds(
    learned: list[tuple[str, int, int, int]], size: int, tenant: str
) -> None:
    estimate = PromptLengthEstimator()
    for name, taught_size, tokens, prompts in learned:
        estimate.learn(PromptSize(taught_size, 0, prompts), tokens, name)
    expected = estimate.tokens(PromptSize(size), tenant)
    assert size / MAX_BYTES_PER_TOKEN - 1 <= expected <= size / MIN_BYTES_PER_TOKEN + 1025
    if tenant == "new":
        assert expected >= round(size / BYTES_PER_TOKEN)


@given(LEARNED)
def test_no_tenant_changes_what_a_known_one_is_expected_to_send(learned: list[tuple[str, int, int, int]]) -> None:
    estimate = taught(("known", 8000, int(2 * MIN_WEIGHT)))
    before = estimate.tokens(PromptSize(4000), "known")
    for name, size, tokens, prompts in learned:
        estimate.learn(PromptSize(size, 0, prompts), tokens, name)
    assert estimate.tokens(PromptSize(4000), "known") == before
