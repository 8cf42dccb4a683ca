"""All rows of the table of request fields, the refusals that follow from them, and the routes of a worker.

The list of routes includes those of OpenAI and vLLM that a worker does not have.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from paceline_core.errors import Code, RequestError
from paceline_workers.server.openai.fields.field import BOTH, OPENAI, VLLM, Api, FieldRoute, RequestField, Support
from paceline_workers.server.openai.fields.generation import GENERATING_FIELDS
from paceline_workers.server.openai.fields.routes import MESSAGES_FIELDS, OTHER_FIELDS, RESPONSES_FIELDS, SCORING_FIELDS

FIELDS: tuple[RequestField, ...] = (
    *GENERATING_FIELDS,
    *OTHER_FIELDS,
    *SCORING_FIELDS,
    *RESPONSES_FIELDS,
    *MESSAGES_FIELDS,
)

_OTHER_FORMS = frozenset({FieldRoute.RESPONSES, FieldRoute.MESSAGES})
"""Routes that express a chat in another form."""
_REPORTS = frozenset({"stream_options", "return_prompt_text"})
"""Fields of a chat that only add to what is returned and never change the answer."""
_CHAT_DEFAULTS: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "min_tokens": (0,),
    "presence_penalty": (0, 0.0),
    "frequency_penalty": (0, 0.0),
    "repetition_penalty": (1, 1.0),
    "length_penalty": (1, 1.0),
    "min_p": (0, 0.0),
    "truncation_side": ("left",),
    "response_format": ({"type": "text"},),
    **dict.fromkeys(("add_generation_prompt", "include_reasoning", "skip_special_tokens"), (True,)),
    **dict.fromkeys(
        (
            "add_special_tokens", "continue_final_message", "early_stopping", "echo", "ignore_eos",
            "include_stop_str_in_output", "logprobs", "return_token_ids", "return_tokens_as_token_ids",
            "use_beam_search",
        ),
        (False,),
    ),
    **dict.fromkeys(("bad_words", "documents", "stop", "stop_token_ids"), ([],)),
    "cache_salt": ("",),
    "logit_bias": ({},),
    "parallel_tool_calls": (True,),
    "top_logprobs": (0,),
}  # fmt: skip
"""The values of a chat's fields that request nothing."""

_ROWS: Mapping[tuple[str, str], RequestField] = {(route, row.name): row for row in FIELDS for route in row.routes}


def field_of(route: str, name: str) -> RequestField | None:
    """The row of a field in a route's body, None if no API known here has that field."""
    return _ROWS.get((route, name))


def refuse_unsupported(route: str, unread: Mapping[str, Any]) -> None:
    """Refuse the first of the fields that no model reads that would change the answer. Raises RequestError."""
    for name, value in unread.items():
        row = field_of(route, name)
        if row is not None and row.support is Support.REFUSED and not _among(value, row.neutral):
            raise RequestError(Code.INVALID_REQUEST, row.refusal, param=name)
        if row is None and route in _OTHER_FORMS:
            _refuse_chats_own(name, value)


def _refuse_chats_own(name: str, value: Any) -> None:
    """Refuse a chat's field on a route that expresses a chat in another form. Raises RequestError."""
    row = field_of(FieldRoute.CHAT, name)
    if row is None or row.support is Support.IGNORED or name in _REPORTS:
        return
    neutral = _CHAT_DEFAULTS.get(name, ()) if row.support is Support.SERVED else row.neutral
    if not _among(value, neutral):
        words = f"`{name}` is for /v1/chat/completions, and would not be followed here; leave it out."
        raise RequestError(Code.INVALID_REQUEST, words, param=name)


def _among(value: Any, neutral: Iterable[Any]) -> bool:
    """Membership that tells 0 from false and 1 from true."""
    return any(type(value) is type(one) and value == one for one in neutral)


@dataclass(frozen=True, slots=True)
class ApiPath:
    """`worker`, `gateway`: whether each serves the path. A note says what replaces it, or what it is for."""

    path: str
    apis: tuple[Api, ...]
    worker: bool
    gateway: bool
    note: str = ""


def _absent(path: str, apis: tuple[Api, ...], note: str) -> ApiPath:
    """A path that neither serves."""
    return ApiPath(path, apis, worker=False, gateway=False, note=note)


PATHS: tuple[ApiPath, ...] = (
    ApiPath("/v1/chat/completions", BOTH, worker=True, gateway=True),
    ApiPath("/v1/completions", BOTH, worker=True, gateway=True),
    ApiPath("/v1/embeddings", BOTH, worker=True, gateway=True),
    ApiPath("/v1/models", BOTH, worker=True, gateway=True, note="names, with `max_model_len` (null until it is known)"),
    ApiPath("/v1/models/{name}", BOTH, worker=True, gateway=True),
    ApiPath("/tokenize", VLLM, worker=True, gateway=True),
    ApiPath("/detokenize", VLLM, worker=True, gateway=True),
    ApiPath("/health", VLLM, worker=False, gateway=True, note="a worker has `/healthz` and `/readyz`"),
    ApiPath("/version", VLLM, worker=True, gateway=True),
    ApiPath("/metrics", VLLM, worker=True, gateway=False, note="a gateway's are on its admin port"),
    ApiPath("/v1/responses", BOTH, worker=True, gateway=True, note="nothing is kept: no `previous_response_id`"),
    ApiPath("/v1/messages", VLLM, worker=True, gateway=True, note="Anthropic's, with its errors"),
    ApiPath("/v1/messages/count_tokens", VLLM, worker=True, gateway=True, note="Anthropic's; nothing is generated"),
    ApiPath("/v1/score", VLLM, worker=True, gateway=True, note="by embeddings, where the model has them"),
    ApiPath("/score", VLLM, worker=True, gateway=True, note="the same"),
    ApiPath("/v1/rerank", VLLM, worker=True, gateway=True, note="the same, ordered; Jina's and Cohere's"),
    ApiPath("/v2/rerank", VLLM, worker=True, gateway=True, note="the same"),
    ApiPath("/rerank", VLLM, worker=True, gateway=True, note="the same"),
    ApiPath("/classify", VLLM, worker=False, gateway=False, note="needs a model made for it"),
    ApiPath("/pooling", VLLM, worker=False, gateway=False, note="`/v1/embeddings`"),
    _absent("/v2/embed", VLLM, "`/v1/embeddings`"),
    _absent("/generative_scoring", VLLM, "`/v1/completions` with `allowed_token_ids` and `logprobs`"),
    _absent("/v1/responses/{id}", BOTH, "nothing is kept"),
    _absent("/v1/responses/{id}/cancel", BOTH, "nothing runs in the background; close the connection"),
    _absent("/v1/responses/{id}/input_items", OPENAI, "nothing is kept"),
    _absent("/v1/responses/input_tokens", OPENAI, "`/tokenize` with `messages`"),
    _absent("/v1/responses/compact", OPENAI, "`truncation` of `/v1/responses`"),
    _absent("/v1/chat/completions/{id}", OPENAI, "nothing is kept"),
    _absent("/v1/chat/completions/render", VLLM, "`return_prompt_text` and `return_token_ids` of a chat"),
    _absent("/v1/completions/render", VLLM, "`/tokenize`"),
    _absent("/v1/realtime", BOTH, "models read and write text here"),
    _absent("/v1/audio/speech", OPENAI, "models read and write text here"),
    ApiPath("/v1/audio/transcriptions", BOTH, worker=False, gateway=False, note="models read and write text here"),
    ApiPath("/v1/audio/translations", BOTH, worker=False, gateway=False, note="models read and write text here"),
    _absent("/v1/images/generations", OPENAI, "models read and write text here"),
    _absent("/v1/images/edits", OPENAI, "models read and write text here"),
    _absent("/v1/images/variations", OPENAI, "models read and write text here"),
    _absent("/v1/videos", OPENAI, "models read and write text here"),
    ApiPath("/v1/moderations", OPENAI, worker=False, gateway=False, note="a service's `filters`"),
    ApiPath("/v1/files", OPENAI, worker=False, gateway=False, note="nothing is kept"),
    _absent("/v1/uploads", OPENAI, "nothing is kept"),
    _absent("/v1/vector_stores", OPENAI, "nothing is kept"),
    _absent("/v1/conversations", OPENAI, "nothing is kept; send the earlier items as `input`"),
    _absent("/v1/assistants", OPENAI, "nothing is kept"),
    _absent("/v1/threads", OPENAI, "nothing is kept"),
    _absent("/v1/containers", OPENAI, "nothing is run for a model here"),
    _absent("/v1/agents", OPENAI, "nothing is run for a model here"),
    _absent("/v1/evals", OPENAI, "`lm_eval` over `/v1/completions`"),
    _absent("/v1/organization/users", OPENAI, "Tenants, as objects of the cluster"),
    ApiPath("/v1/batches", OPENAI, worker=False, gateway=False, note="the class `offline`"),
    ApiPath("/v1/fine_tuning/jobs", OPENAI, worker=False, gateway=False, note="nothing is trained"),
    ApiPath("/load", VLLM, worker=False, gateway=False, note="`/metrics`"),
    ApiPath("/tokenizer_info", VLLM, worker=False, gateway=False),
    _absent("/ping", VLLM, "`/health`"),
    _absent("/invocations", VLLM, "the route itself"),
    _absent("/v1/load_lora_adapter", VLLM, "an InferenceService for each model"),
    _absent("/v1/unload_lora_adapter", VLLM, "an InferenceService for each model"),
    _absent("/server_info", VLLM, "the status of an InferenceService"),
    _absent("/reset_prefix_cache", VLLM, "`cache_salt` of a request"),
    _absent("/sleep", VLLM, "`replicas.min: 0` of a pool"),
    _absent("/wake_up", VLLM, "the next request"),
    _absent("/is_sleeping", VLLM, "the status of an InferenceService"),
    _absent("/pause", VLLM, "only in its development mode"),
    _absent("/resume", VLLM, "only in its development mode"),
    _absent("/collective_rpc", VLLM, "only in its development mode"),
    _absent("/update_weights", VLLM, "only in its development mode; a new revision is rolled out"),
)
"""In the order of docs/api.md."""
