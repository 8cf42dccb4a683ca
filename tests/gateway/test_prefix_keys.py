"""What names a prompt's beginnings: the same bytes for the same conversation, and nothing that others could share."""

import json
from itertools import pairwise
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.gateway.manifests import route, service, tenant
from tests.gateway.pieces import snapshot

from paceline_core.wire import PrefixKeys
from paceline_core.wire.message import BLOCK, REACHES
from paceline_gateway.api.admission import admit
from paceline_gateway.routing.prefix import canonical, prefix_keys

LONG = "Time to first token. " * 200
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=40),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
MESSAGES = st.lists(st.dictionaries(st.sampled_from(["role", "content", "name", "tool_calls"]), JSON), max_size=6)


def chat(*texts: str, **fields: Any) -> dict[str, Any]:
    messages = [
        {"role": "user" if number % 2 == 0 else "assistant", "content": text} for number, text in enumerate(texts)
    ]
    return {"model": "chat", "messages": messages} | fields


def keys(body: dict[str, Any], name: str = "team") -> tuple[str, ...]:
    found = prefix_keys(body, name)
    return () if found is None else found.keys


def reordered(value: Any) -> Any:
    """The same JSON with the fields of every object in the opposite order."""
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return [reordered(item) for item in value] if isinstance(value, list) else value


def test_a_longer_conversation_has_the_keys_of_the_shorter_one_first() -> None:
    first, second = keys(chat(LONG)), keys(chat(LONG, "An answer.", LONG))
    assert len(first) == 4
    assert second[:4] == first
    assert len(second) > len(first)


def test_a_difference_changes_the_key_of_its_block_and_all_behind_it() -> None:
    one, other = keys(chat(LONG)), keys(chat(LONG[:1500] + "!" + LONG[1501:]))
    assert one[0] == other[0]
    assert set(one[1:]).isdisjoint(other[1:])


def test_tenants_share_no_key() -> None:
    assert set(keys(chat(LONG))).isdisjoint(keys(chat(LONG), "other"))


def test_requests_with_another_cache_salt_share_no_key() -> None:
    plain, one, two = (keys(chat(LONG, **fields)) for fields in ({}, {"cache_salt": "1"}, {"cache_salt": "2"}))
    assert not set(plain) & set(one) | set(plain) & set(two) | set(one) & set(two)
    assert keys(chat(LONG, LONG, cache_salt="1"))[: len(one)] == one
    assert keys(chat(LONG, cache_salt="1"), "other") != one
    assert keys(chat(LONG, cache_salt=None)) == keys(chat(LONG, cache_salt=5)) == plain


@pytest.mark.parametrize("field", ["chat_template", "chat_template_kwargs", "documents"])
def test_template_arguments_change_all_keys(field: str) -> None:
    told = chat(LONG, **{field: [{"title": "one"}]})
    assert not set(keys(told)) & set(keys(chat(LONG)))
    assert keys(told) == keys(told | {"temperature": 1})
    assert keys(chat(LONG, **{field: None})) == keys(chat(LONG))


def test_a_prompt_that_is_cut_has_no_keys_since_its_begin_may_be_gone() -> None:
    assert keys(chat(LONG, truncate_prompt_tokens=50)) == ()
    assert keys({"prompt": LONG, "truncate_prompt_tokens": -1}) == ()


def test_a_clients_attribution_changes_no_key() -> None:
    """It is new in each request and stands at the very begin."""
    brief = {"type": "text", "text": "be brief"}
    own = [{"type": "text", "text": f"x-anthropic-billing-header: cch={number}"} for number in (1, 2)]
    with_own = [keys(chat(LONG, system=[block, brief])) for block in own]
    assert with_own[0] == with_own[1] == keys(chat(LONG, system=[brief])) != keys(chat(LONG))
    assert keys(chat(LONG, system=own)) == keys(chat(LONG))


def test_what_does_not_reach_the_prompt_changes_no_key() -> None:
    assert keys(chat(LONG, temperature=0.3, stream=True, user="u", model="other")) == keys(chat(LONG))


def test_tools_come_before_the_messages_unless_none_may_be_called() -> None:
    tools = [{"type": "function", "function": {"name": "clock"}}]
    assert set(keys(chat(LONG, tools=tools))).isdisjoint(keys(chat(LONG)))
    assert keys(chat(LONG, tools=tools, tool_choice="none")) == keys(chat(LONG)) == keys(chat(LONG, tools=[]))


def test_a_prompt_alone_in_a_list_is_the_same_prompt() -> None:
    assert keys({"prompt": LONG}) == keys({"prompt": [LONG]}) != ()


def test_items_of_a_response_have_keys_and_more_of_them_only_add() -> None:
    items = [{"role": "user", "content": LONG}, {"role": "user", "content": LONG}]
    first = keys({"input": items[:1], "instructions": "be brief"})
    assert keys({"input": items, "instructions": "be brief"})[: len(first)] == first != ()
    assert keys({"input": items[:1]})[0] != first[0]


def test_token_ids_have_keys_too_and_more_of_them_only_add() -> None:
    ids = list(range(1000))
    assert keys({"prompt": ids + ids})[:3] == keys({"prompt": ids})[:3] != ()


@pytest.mark.parametrize(
    "body", [{}, {"prompt": None}, {"prompt": [LONG, LONG]}, {"prompt": [[1] * 2000, [2] * 2000]}, {"input": LONG},
             {"messages": LONG}, chat("short")]
)  # fmt: skip
def test_what_is_no_single_long_prompt_has_none(body: dict[str, Any]) -> None:
    assert prefix_keys(body, "team") is None


def test_a_body_nested_too_deep_to_be_written_has_none_and_does_not_fail() -> None:
    deep = orjson.loads(b"[" * 900 + b"]" * 900)
    assert prefix_keys({"messages": [{"content": deep}, {"content": LONG}]}, "team") is None


def test_a_key_stands_for_a_whole_reach_and_there_are_at_most_so_many() -> None:
    found = prefix_keys({"prompt": "x" * (REACHES[-1] + 5)}, "team")
    assert found is not None
    assert (found.size, len(found.keys)) == (REACHES[-1] + 5, len(REACHES))
    assert [len(keys({"prompt": "x" * (size * BLOCK)})) for size in (1, 32, 35, 36, 64, 71, 72)] == [
        1, 32, 32, 33, 40, 40, 41,
    ]  # fmt: skip


def test_keys_stand_an_eighth_apart_at_most_beyond_the_first_that_do_by_the_kib() -> None:
    assert REACHES[:32] == tuple(range(BLOCK, 33 * BLOCK, BLOCK))
    assert all(near < far <= near * 9 / 8 for near, far in pairwise(REACHES[31:]))


@pytest.mark.parametrize("size", [40_000, 130_000, 220_000])
def test_what_long_prompts_share_is_known_to_an_eighth(size: int) -> None:
    text = "".join(map(str, range(size)))[:size]
    ours, theirs = keys({"prompt": text + "a" * 50_000}), keys({"prompt": text + "b" * 50_000})
    shared = sum(a == b for a, b in zip(ours, theirs, strict=True))
    assert size * 8 / 9 < REACHES[shared - 1] <= size


@given(MESSAGES, MESSAGES)
def test_more_messages_only_add_bytes_whatever_order_their_fields_came_in(
    begun: list[dict[str, Any]], more: list[dict[str, Any]]
) -> None:
    short = canonical({"messages": begun})
    long = canonical({"messages": reordered(begun + more)})
    assert short is not None
    assert long is not None
    assert bytes(long).startswith(short)


@given(st.integers(0, 6 * BLOCK), st.text(max_size=5))
def test_a_worker_reads_what_is_sent(size: int, name: str) -> None:
    found = prefix_keys({"prompt": "y" * size}, name)
    assert (found is None) == (size < BLOCK)
    assert found is None or PrefixKeys.read(found.header()) == found


def test_only_workers_of_our_own_are_sent_keys() -> None:
    foreign = service("far", runtime={"name": "vllm", "image": "vllm/vllm-openai:v0.11.0"})
    seen = snapshot(service(), foreign, route("public", {"service": "far"}), tenant())
    asked = {name: json.dumps(chat(LONG) | {"model": name}).encode() for name in ("chat", "public")}
    admitted = {name: admit(body, {}, seen.tenants["team"], seen, 0.5) for name, body in asked.items()}
    assert admitted["chat"].prefix == prefix_keys(chat(LONG), "team") is not None
    assert admitted["public"].prefix is None
