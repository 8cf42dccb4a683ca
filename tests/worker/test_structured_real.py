"""Structured output and forced calls on the real engine: the demo model, which writes no JSON of its own will."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import OpenAI
from tests.worker.harness import demo_with, resuming, text_of
from tests.worker.processes import HTTP, LIMIT_S, WorkerProcess, worker_process
from tests.worker.test_tool_routes import TEMPLATE, WEATHER

pytestmark = pytest.mark.real

QUESTION: Any = [{"role": "user", "content": "What is TTFT?"}]
SCHEMA = {
    "type": "object",
    "properties": {"ok": {"type": "boolean"}, "kind": {"enum": ["a", "b"]}},
    "required": ["ok", "kind"],
    "additionalProperties": False,
}
CITY = {"type": "object", "properties": {"city": {"enum": ["Rome", "Kyiv"]}}, "required": ["city"]}
TOOL: Any = {
    "type": "function",
    "function": WEATHER["function"] | {"parameters": CITY | {"additionalProperties": False}},
}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    """The demo model with a template that takes tools."""
    folder = tmp_path_factory.mktemp("demo")
    model = demo_with(TEMPLATE, folder)
    with worker_process(folder, model=model, watchdog_s=LIMIT_S, engine={"threads": 1}) as worker:
        worker.ready()
        yield worker


@pytest.fixture(scope="module")
def client(worker: WorkerProcess) -> OpenAI:
    return OpenAI(base_url=f"{worker.url}/v1", api_key="none", timeout=LIMIT_S, max_retries=0)


def ask(client: OpenAI, **fields: Any) -> Any:
    asked: Any = {"model": "chat", "messages": QUESTION, "max_tokens": 200} | fields
    return client.chat.completions.create(**asked).choices[0]


@pytest.mark.parametrize("temperature", [0, 2])
def test_an_answer_fits_its_schema(client: OpenAI, temperature: float) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    choice = ask(client, response_format=wanted, temperature=temperature, seed=3)
    answer = json.loads(choice.message.content)
    assert answer.keys() == {"ok", "kind"}
    assert answer["kind"] in ("a", "b")
    assert choice.finish_reason == "stop"


@pytest.mark.parametrize(
    ("extra", "answers"),
    [
        ({"guided_choice": ["yes, of course", "no"]}, {"yes, of course", "no"}),
        ({"guided_regex": "(ab){3}"}, {"ababab"}),
        ({"structured_outputs": {"grammar": 'start: "x" "y"'}}, {"xy"}),
    ],
)
def test_an_answer_is_what_the_grammar_leaves(client: OpenAI, extra: dict[str, Any], answers: set[str]) -> None:
    assert ask(client, extra_body=extra).message.content in answers


@pytest.mark.parametrize("seed", range(4))
def test_beside_tools_comes_an_answer_of_the_schema_or_one_call(client: OpenAI, seed: int) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}}
    more: Any = {"tools": [TOOL], "parallel_tool_calls": False, "temperature": 2, "seed": seed}
    choice = ask(client, response_format=wanted, **more)
    assert choice.finish_reason in ("stop", "tool_calls")
    if choice.message.tool_calls:
        [call] = choice.message.tool_calls
        assert json.loads(call.function.arguments)["city"] in ("Rome", "Kyiv")
        assert not choice.message.content
    else:
        assert json.loads(choice.message.content).keys() == {"ok", "kind"}


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "get_weather"}}])
def test_a_forced_call_comes(client: OpenAI, choice: Any) -> None:
    # JSON may hold blanks in 20 places, 32 in each, and this model likes them
    how = {"temperature": 0, "parallel_tool_calls": False, "max_tokens": 800}
    answer = ask(client, tools=[TOOL], tool_choice=choice, **how)
    assert answer.finish_reason == "tool_calls"
    assert answer.message.content is None
    for call in answer.message.tool_calls:
        assert call.function.name == "get_weather"
        assert json.loads(call.function.arguments)["city"] in ("Rome", "Kyiv")


def test_a_grammar_goes_on_over_a_resumption(worker: WorkerProcess) -> None:
    body = {
        "model": "chat", "messages": QUESTION, "stream": True, "max_tokens": 60, "temperature": 2, "seed": 5,
        "guided_json": SCHEMA,
    }  # fmt: skip
    url = f"{worker.url}/v1/chat/completions"
    whole = HTTP.post(url, json=body, headers=worker.gateway_headers).content
    lines = [line.split(b" ")[3] for line in whole.split(b"\n") if line.startswith(b": p ")]
    ids = [int(token) for line in lines for token in line.split(b",")]
    for cut in range(1, len(ids) - 1, 4):
        content, headers = resuming(body, {"ids": ids[:cut]})
        rest = text_of(HTTP.post(url, content=content, headers=worker.gateway_headers | headers).content)
        assert text_of(whole).endswith(rest)
        assert rest


def test_a_grammar_that_cannot_be_followed_is_the_clients_error(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, extra_body={"guided_regex": "("})
    assert caught.value.param == "guided_regex"
