"""LiteLLM's `rerank`, by its ways to ask vLLM and Cohere."""

import json
import os
import sys

import litellm

base = os.environ["OPENAI_BASE_URL"]
asked = {
    "query": "What is TTFT?",
    "documents": ["A node is one machine of a cluster.", "What is TTFT?", "TTFT is a latency."],
    "api_key": os.environ["OPENAI_API_KEY"],
    "timeout": 60,
}
bases = {"hosted_vllm": base, "cohere": base.removesuffix("/v1")}
answers = {
    provider: litellm.rerank(model=f"{provider}/{sys.argv[1]}", api_base=url, top_n=2, **asked)
    for provider, url in bases.items()
}
print(
    json.dumps(
        {
            "results": [
                [[result["index"], result["relevance_score"], result["document"]["text"]] for result in answer.results]
                for answer in answers.values()
            ],
            "tokens": answers["hosted_vllm"].meta["tokens"]["input_tokens"],
        }
    )
)
