"""The routes of a worker, beside those of OpenAI and vLLM that it does not have."""

from dataclasses import dataclass

from paceline_workers.server.openai.fields.row import BOTH, OPENAI, VLLM, Api


@dataclass(frozen=True, slots=True)
class Path:
    """`worker`, `gateway`: whether each answers it. A note says what takes its place, or what it is for."""

    path: str
    apis: tuple[Api, ...]
    worker: bool
    gateway: bool
    note: str = ""


PATHS: tuple[Path, ...] = (
    Path("/v1/chat/completions", BOTH, worker=True, gateway=True),
    Path("/v1/completions", BOTH, worker=True, gateway=True),
    Path("/v1/embeddings", BOTH, worker=True, gateway=True),
    Path("/v1/models", BOTH, worker=True, gateway=True, note="names, with `max_model_len` (null until it is known)"),
    Path("/v1/models/{name}", BOTH, worker=True, gateway=True),
    Path("/tokenize", VLLM, worker=True, gateway=True),
    Path("/detokenize", VLLM, worker=True, gateway=True),
    Path("/health", VLLM, worker=False, gateway=True, note="a worker has `/healthz` and `/readyz`"),
    Path("/version", VLLM, worker=True, gateway=True),
    Path("/metrics", VLLM, worker=True, gateway=False, note="a gateway's are on its admin port"),
    Path("/v1/responses", BOTH, worker=True, gateway=True, note="nothing is kept: no `previous_response_id`"),
    Path("/v1/messages", VLLM, worker=True, gateway=True, note="Anthropic's, with its errors"),
    Path("/v1/score", VLLM, worker=True, gateway=True, note="by embeddings, where the model has them"),
    Path("/score", VLLM, worker=True, gateway=True, note="the same"),
    Path("/v1/rerank", VLLM, worker=True, gateway=True, note="the same, ordered; Jina's and Cohere's"),
    Path("/v2/rerank", VLLM, worker=True, gateway=True, note="the same"),
    Path("/rerank", VLLM, worker=True, gateway=True, note="the same"),
    Path("/classify", VLLM, worker=False, gateway=False, note="needs a model made for it"),
    Path("/pooling", VLLM, worker=False, gateway=False, note="`/v1/embeddings`"),
    Path("/v1/audio/transcriptions", BOTH, worker=False, gateway=False, note="models read and write text here"),
    Path("/v1/audio/translations", BOTH, worker=False, gateway=False, note="models read and write text here"),
    Path("/v1/images/generations", OPENAI, worker=False, gateway=False, note="models read and write text here"),
    Path("/v1/moderations", OPENAI, worker=False, gateway=False, note="a service's `filters`"),
    Path("/v1/files", OPENAI, worker=False, gateway=False, note="nothing is kept"),
    Path("/v1/batches", OPENAI, worker=False, gateway=False, note="the class `offline`"),
    Path("/v1/fine_tuning/jobs", OPENAI, worker=False, gateway=False, note="nothing is trained"),
    Path("/load", VLLM, worker=False, gateway=False, note="`/metrics`"),
    Path("/tokenizer_info", VLLM, worker=False, gateway=False),
)
"""In the order of docs/api.md."""
