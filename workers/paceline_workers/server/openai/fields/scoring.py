"""Fields of `/v1/score` and `/v1/rerank`."""

from paceline_workers.server.openai.fields.row import (
    RERANK,
    SCORE,
    SCORING,
    VLLM,
    RequestField,
    ignored,
    refused,
    served,
)

SCORING_FIELDS: tuple[RequestField, ...] = (
    served("model", SCORING, VLLM, "one of the names in `/v1/models`"),
    served(
        "text_1", SCORE, VLLM,
        'the queries: one text, or a list of up to 2,048; also `{"text": ...}` for each',
    ),
    served("text_2", SCORE, VLLM, "what they are compared with: one query with each, or each with its own"),
    served("queries", SCORE, VLLM, "another name of `text_1`, beside `documents` or `items`"),
    served("documents", SCORE, VLLM, "another name of `text_2`"),
    served("items", SCORE, VLLM, "another name of `text_2`"),
    served("data_1", SCORE, VLLM, "another name of `text_1`, beside `data_2`"),
    served("data_2", SCORE, VLLM, "another name of `text_2`"),
    served("query", RERANK, VLLM, 'one text, or `{"text": ...}`'),
    served("documents", RERANK, VLLM, 'a list of up to 2,048 texts, each also as `{"text": ...}`'),
    served("top_n", RERANK, VLLM, "how many of the best are told; 0 (default): all"),
    served("return_documents", RERANK, (), "`false` leaves the texts out of the results; Jina's and Cohere's"),
    served("max_tokens_per_query", SCORING, VLLM, "keeps so many tokens at a query's begin; 0 (default): all"),
    served("max_tokens_per_doc", SCORING, VLLM, "the same of the texts that it is compared with"),
    served("truncate_prompt_tokens", SCORING, VLLM, "of each text, as of an input of `/v1/embeddings`"),
    served("truncation_side", SCORING, VLLM, "as of `/v1/embeddings`"),
    served("cache_salt", SCORING, VLLM, "as in a chat"),
    refused("instruction", SCORING, VLLM, "write it into the query"),
    refused("chat_template_kwargs", SCORING, VLLM, "no template writes what is embedded", {}),
    refused("padding", SCORING, VLLM, "no text is padded", "do_not_pad"),
    refused("rank_fields", RERANK, (), "Cohere's; a document is its `text`", ["text"], []),
    refused("max_chunks_per_doc", RERANK, (), "Cohere's; a document is embedded whole", 1),
    ignored("use_activation", SCORING, VLLM, "a cosine stays as it is"),
    ignored("user", SCORING, VLLM, "who asks is told by the key"),
    ignored("priority", SCORING, VLLM, "the header `x-paceline-class` chooses a class"),
    ignored("request_id", SCORING, VLLM, "the header `x-request-id` names a request"),
    ignored("mm_processor_kwargs", SCORING, VLLM, "of images and sound, which are not taken"),
)  # fmt: skip
"""In the order of docs/api.md."""
