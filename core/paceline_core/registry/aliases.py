"""vLLM's names for those of our metrics that mean the same, so that its dashboards and autoscalers can read a worker.

Names, types and labels are those of vLLM 0.33, and old ones that dashboards still use. The buckets are our own, finer
ones: quantiles work with any. Metrics that we cannot provide are missing: sleep states, connectors, adapters,
per-request inference time, the lifetime of blocks.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Alias:
    """`name` shows the sum of `source`'s children whose labels `match`.

    `by`: a label of ours that is kept, and its name there. `share`: divide by the sum over all children.
    """

    name: str
    source: str
    help: str
    match: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    by: tuple[str, str] | None = None
    share: bool = False


@dataclass(frozen=True, slots=True)
class Info:
    """A gauge that is always 1; its labels have the sums of our gauges."""

    name: str
    help: str
    labels: Mapping[str, str]


LABELS = ("model_name", "engine")
"""Labels of every alias; `engine` is always 0."""

_USAGE = "Share of KV pages that requests hold; cached ones count as free, as there."
_ITL = "Observed once a read, not once a token."
_WHOLE = "Once a request, all its choices together; there once a choice."


def _kind(*values: str) -> dict[str, tuple[str, ...]]:
    return {"kind": values}


def _phase(value: str) -> dict[str, tuple[str, ...]]:
    return {"phase": (value,)}


ALIASES: tuple[Alias, ...] = (
    Alias("vllm:num_requests_running", "paceline_scheduler_running_requests", "At the last heartbeat."),
    Alias("vllm:num_requests_waiting", "paceline_scheduler_waiting_requests", "Of all classes."),
    Alias("vllm:kv_cache_usage_perc", "paceline_kv_pages", _USAGE, {"state": ("active",)}, share=True),
    Alias(
        "vllm:gpu_cache_usage_perc", "paceline_kv_pages", "Old name of the same.", {"state": ("active",)}, share=True
    ),
    Alias("vllm:prefix_cache_queries_total", "paceline_prefix_lookup_tokens_total", "In tokens."),
    Alias("vllm:prefix_cache_hits_total", "paceline_prefix_hit_tokens_total", "In tokens."),
    Alias("vllm:gpu_prefix_cache_queries_total", "paceline_prefix_lookup_tokens_total", "Old name of the same."),
    Alias("vllm:gpu_prefix_cache_hits_total", "paceline_prefix_hit_tokens_total", "Old name of the same."),
    Alias("vllm:num_preemptions_total", "paceline_scheduler_preemptions_total", "Of all modes."),
    Alias(
        "vllm:prompt_tokens_total",
        "paceline_worker_tokens_total",
        "Counted at a request's first token.",
        _kind("input"),
    ),
    Alias(
        "vllm:prompt_tokens_cached_total", "paceline_worker_tokens_total", "Of those, found cached.", _kind("cached")
    ),
    Alias("vllm:generation_tokens_total", "paceline_worker_tokens_total", "Of all choices.", _kind("output")),
    Alias(
        "vllm:request_success_total",
        "paceline_worker_sequences_total",
        "Choices by how they ended; content_filter is ours alone.",
        by=("finish", "finished_reason"),
    ),
    Alias("vllm:time_to_first_token_seconds", "paceline_worker_ttft_seconds", "From the request's headers."),
    Alias("vllm:inter_token_latency_seconds", "paceline_worker_itl_seconds", _ITL),
    Alias("vllm:time_per_output_token_seconds", "paceline_worker_itl_seconds", "Old name of the same."),
    Alias("vllm:request_time_per_output_token_seconds", "paceline_worker_tpot_seconds", "Of two tokens or more."),
    Alias("vllm:e2e_request_latency_seconds", "paceline_worker_duration_seconds", "Of requests that ended well."),
    Alias(
        "vllm:request_queue_time_seconds", "paceline_worker_phase_seconds", "Without batch windows.", _phase("queue")
    ),
    Alias(
        "vllm:request_prefill_time_seconds",
        "paceline_worker_phase_seconds",
        "Admitted to first token.",
        _phase("prefill"),
    ),
    Alias(
        "vllm:request_decode_time_seconds", "paceline_worker_phase_seconds", "First to last token.", _phase("decode")
    ),
    Alias("vllm:request_prompt_tokens", "paceline_worker_request_tokens", "Once a request.", _kind("input")),
    Alias("vllm:request_generation_tokens", "paceline_worker_request_tokens", _WHOLE, _kind("output")),
    Alias(
        "vllm:request_max_num_generation_tokens",
        "paceline_worker_request_tokens",
        "The longest choice.",
        _kind("longest"),
    ),
    Alias("vllm:request_params_max_tokens", "paceline_worker_request_tokens", "The limit in force.", _kind("limit")),
    Alias("vllm:request_params_n", "paceline_worker_request_choices", "With `best_of`, that many."),
    Alias("vllm:iteration_tokens_total", "paceline_scheduler_step_tokens", "A histogram, in spite of its name."),
)

CACHE_CONFIG = Info(
    "vllm:cache_config_info",
    "For schedulers that ask how large a page is, and how many there are.",
    {"block_size": "paceline_kv_page_tokens", "num_gpu_blocks": "paceline_kv_pages"},
)
