"""The clients that most programs are written with, each in an environment of its own, against a running gateway."""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.clients.conftest import Served
from tests.clients.environments import LANGCHAIN, LITELLM, LM_EVAL, OPENAI, Environment, EnvironmentMissing, installed

pytestmark = [pytest.mark.real, pytest.mark.timeout(1200)]
TOLERANCE = 1e-4


def told_alike(whole_and_streamed: list[Any]) -> None:
    """At temperature 0 an answer is the same, whole and streamed."""
    whole, streamed = whole_and_streamed
    assert whole
    assert whole == streamed


def test_openai_chats_streams_calls_parses_and_embeds(served: Served) -> None:
    found = served.script(OPENAI, "openai_chat.py")
    assert found["models"] == ["demo"]
    told_alike(found["texts"])
    told_alike(found["completion_tokens"])
    assert (found["call"], found["city"] in {"Oslo", "Rome"}) == ("weather", True)
    assert (found["parsed"], found["vector"]) == ("Judgement", 128)


def test_openai_responses_are_streamed_called_and_parsed(served: Served) -> None:
    found = served.script(OPENAI, "openai_responses.py")
    told_alike(found["texts"])
    assert (found["kinds"][0], found["kinds"][-1]) == ("response.created", "response.completed")
    assert (found["after"], found["cut"]) == ([True, True], ["auto", True])
    assert found["errors"] == [
        ["context_length_exceeded", "input"],
        ["invalid_request", "truncation"],
        ["invalid_request", "input[0].type"],
    ]
    assert (found["call"], found["city"] in {"Oslo", "Rome"}, found["parsed"]) == ("weather", True, "Judgement")


def test_langchain_speaks_responses(served: Served) -> None:
    found = served.script(LANGCHAIN, "langchain_openai_responses.py")
    assert found["calls"] == found["streamed_calls"] == ["weather"]
    assert found["same"], "streamed and whole"
    assert found["result"] in {"rain in Oslo", "rain in Rome"}
    assert (found["after"], found["judged"]) == ("ai", "Judgement")


def test_langchain_binds_tools_and_parses_structured_output(served: Served) -> None:
    found = served.script(LANGCHAIN, "langchain_openai_chat.py")
    assert found["result"] in {"rain in Oslo", "rain in Rome"}
    assert found["calls"] == found["streamed_calls"] == ["weather"]
    assert found["same"], "streamed and whole"
    assert (found["after"], found["input_tokens"]) == ("ai", True)
    assert found["judged"] == {"json_schema": "Judgement", "function_calling": "Judgement"}


def test_litellm_completes_streams_and_calls(served: Served) -> None:
    found = served.script(LITELLM, "litellm_completion.py")
    told_alike(found["texts"])
    assert 0 < found["completion_tokens"] <= 8
    assert (found["call"], found["city"] in {"Oslo", "Rome"}) == ("weather", True)


def test_litellm_reranks_as_it_asks_vllm_and_cohere(served: Served) -> None:
    found = served.script(LITELLM, "litellm_rerank.py")
    by_vllm, by_cohere = found["results"]
    assert by_vllm == by_cohere
    assert by_vllm[0] == [1, pytest.approx(1.0), "What is TTFT?"]
    assert by_vllm[1][1] < 0.999
    assert (len(by_vllm), found["tokens"] > 0) == (2, True)


def test_lm_eval_reads_the_loglikelihoods_that_generating_told(served: Served) -> None:
    """The first choice is what the model says by itself, so each of its tokens was told with its logprob before."""
    context = "A promise on"
    made = served.post("/v1/completions", prompt=context, max_tokens=8, temperature=0, logprobs=1)["choices"][0]
    documents = served.scratch / "choices.jsonl"
    documents.write_text(json.dumps({"context": context, "choices": [made["text"], " a rainy day in Oslo"]}) + "\n")
    found = served.script(LM_EVAL, "lm_eval_loglikelihood.py", str(served.model), str(documents))
    assert found["accuracy"] == 1.0
    assert found["greedy"] == [[True, False]]
    assert found["loglikelihoods"][0][0] == pytest.approx(sum(made["logprobs"]["token_logprobs"]), abs=TOLERANCE)


def test_a_client_that_cannot_be_installed_is_named_with_what_it_needs(tmp_path: Path) -> None:
    """What it left half made does not count the next time."""
    absent = Environment("absent", ("./no-such-package",))
    for _ in range(2):
        with pytest.raises(
            EnvironmentMissing, match=r"absent is not installed: .* pip .*PIP_INDEX_URL.*no-such-package"
        ):
            installed(absent, tmp_path)
