"""Cohere's own client: `rerank` of its first and its second API."""

import json
import os
import sys

import cohere

asked = {
    "model": sys.argv[1],
    "query": "What is TTFT?",
    "documents": ["A node is one machine of a cluster.", "What is TTFT?", "TTFT is a latency."],
    "top_n": 2,
}
where = {"api_key": os.environ["OPENAI_API_KEY"], "base_url": os.environ["OPENAI_BASE_URL"].removesuffix("/v1")}
first = cohere.Client(**where, timeout=60).rerank(**asked, return_documents=True)
second = cohere.ClientV2(**where, timeout=60).rerank(**asked, max_tokens_per_doc=64)
print(
    json.dumps(
        {
            "texts": [result.document.text for result in first.results],
            "results": [
                [[result.index, result.relevance_score] for result in answer.results] for answer in (first, second)
            ],
        }
    )
)
