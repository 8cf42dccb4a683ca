"""Clients of agents, structured output and load tests, each in an environment of its own, against a running gateway."""

import json

import pytest
from tests.clients.conftest import Served
from tests.clients.environments import (
    AI_SDK,
    AI_SDK_FORMS,
    AIPERF,
    ANTHROPIC,
    COHERE,
    GUIDELLM,
    INSTRUCTOR,
    OPENAI_AGENTS,
    PYDANTIC_AI,
    installed,
)

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
REQUESTS, TOKENS = 4, 8


def test_instructor_fills_models_by_calls_schemas_and_pieces(served: Served) -> None:
    found = served.script(INSTRUCTOR, "instructor_models.py")
    assert found["found"] == {"tool_call": ["Judgement", "tool_calls"], "json_schema_mode": ["Judgement", "stop"]}
    assert found["partial"]


def test_pydantic_ai_takes_a_native_output_after_a_call(served: Served) -> None:
    [opening, *_] = served.post("/tokenize", prompt="<tool_call>", add_special_tokens=False)["tokens"]
    found = served.script(PYDANTIC_AI, "pydantic_ai_native_output.py", str(opening))
    assert found == {"output": "Judgement", "calls": 1, "requests": 2}


def test_anthropics_client_streams_calls_parses_counts_and_raises(served: Served) -> None:
    found = served.script(ANTHROPIC, "anthropic_messages.py")
    whole, streamed = found["answers"]
    assert whole[0]
    assert whole == streamed
    assert found["counted"] == found["input_tokens"] > 0
    assert (found["call"], found["city"] in {"Oslo", "Rome"}) == ("weather", True)
    assert (found["after"], found["parsed"]) == ("assistant", "Judgement")
    assert found["errors"] == [
        "AuthenticationError authentication_error",
        "NotFoundError not_found_error",
        "BadRequestError invalid_request_error",
    ]
    assert found["kinds"] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


def test_an_agent_as_openais_sdk_makes_it_calls_a_tool_and_answers(served: Served) -> None:
    found = served.script(OPENAI_AGENTS, "openai_agents_tool.py")
    assert found["items"] == ["tool_call_item", "tool_call_output_item", "message_output_item"]
    assert (found["calls"], found["output"]) == (1, "str")


def test_the_ai_sdk_generates_streams_calls_and_builds_objects(served: Served) -> None:
    found = served.script(AI_SDK, "ai_sdk.mjs")
    for whole, streamed in (found["outputTokens"], found["texts"]):
        assert whole
        assert whole == streamed
    assert found["steps"] == 2
    assert found["streamedResults"] == [found["result"]]
    assert found["result"] in {"rain in Oslo", "rain in Rome"}
    assert found["verdict"] == "string"


def test_coheres_own_client_reranks_by_both_of_its_versions(served: Served) -> None:
    found = served.script(COHERE, "cohere_rerank.py")
    first, second = found["results"]
    assert first == second
    assert first[0] == [1, pytest.approx(1.0)]
    assert found["texts"][0] == "What is TTFT?"
    assert len(found["texts"]) == 2


@pytest.mark.parametrize("form", ["responses", "messages"])
def test_the_ai_sdk_speaks_openais_responses_and_anthropics_messages(served: Served, form: str) -> None:
    found = served.script(AI_SDK_FORMS, "ai_sdk_forms.mjs")[form]
    assert (found["errors"], found["warnings"]) == ([], [])
    for whole, streamed in (found["outputTokens"], found["texts"]):
        assert whole
        assert whole == streamed
    assert found["results"] in ([["rain in Oslo"], []], [["rain in Rome"], []])
    assert found["verdict"] == "string"


def test_guidellm_counts_what_it_asked_for(served: Served) -> None:
    report = served.scratch / "guidellm.json"
    api = served.api
    options = {
        "backend": f"kind=openai_http,target={api.endpoint},model={api.model},api_key={api.key}",
        "profile": "kind=synchronous",
        "constraint": f"kind=max_requests,count={REQUESTS}",
        "tokenizer": f"kind=hf_auto,model={served.model}",
        "data": f"kind=synthetic_text,prompt_tokens=16,output_tokens={TOKENS}",
        "output": f"kind=json,path={report}",
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    served.run([str(installed(GUIDELLM) / "bin" / "guidellm"), "run", *words, "--disable-console-interactive"])
    [benchmark] = json.loads(report.read_text())["benchmarks"]
    requests = benchmark["requests"]
    assert [len(requests[kind]) for kind in ("successful", "errored", "incomplete")] == [REQUESTS, 0, 0]
    assert [one["output_metrics"]["text_tokens"] for one in requests["successful"]] == [TOKENS] * REQUESTS


def test_aiperf_streams_chats_counted_by_the_folders_tokenizer(served: Served) -> None:
    api, folder = served.api, served.scratch / "aiperf"
    options = {
        "model": api.model,
        "url": api.endpoint,
        "endpoint-type": "chat",
        "api-key": api.key,
        "tokenizer": str(served.model),
        "request-count": str(REQUESTS),
        "concurrency": "2",
        "isl": "16",
        "osl": str(TOKENS),
        "extra-inputs": "ignore_eos:true",
        "ui": "none",
        "output-artifact-dir": str(folder),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", value)]
    served.run([str(installed(AIPERF) / "bin" / "aiperf"), "profile", "--streaming", *words])
    lines = (folder / "profile_export.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record.get("error") for record in records] == [None] * REQUESTS
    assert [record["metrics"]["usage_completion_tokens"]["value"] for record in records] == [TOKENS] * REQUESTS
