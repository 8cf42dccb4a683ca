"""The worker's configuration file: `paceline_core.launch` writes it, the worker reads it once, at start."""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, StringConstraints, ValidationInfo
from pydantic_core import PydanticCustomError

from paceline_core.config import Config, Listen, is_loopback
from paceline_core.objects.service_runtime import GPU_PAGE_TOKENS, PAGE_TOKENS

USUAL_SEQS = 64


def _usual_seqs(given: dict[str, Any]) -> int:
    return min(USUAL_SEQS, int(given.get("step_tokens", USUAL_SEQS)))


def _within_a_step(seqs: int, info: ValidationInfo) -> int:
    if seqs > (tokens := info.data.get("step_tokens", seqs)):
        fault = "{seqs} running requests need a token each in a step of {tokens}; lower it, or raise step_tokens"
        raise PydanticCustomError("seqs", fault, {"seqs": seqs, "tokens": tokens})
    return seqs


def _a_size_of_page(tokens: int) -> int:
    if tokens not in PAGE_TOKENS:
        sizes, least, most = ", ".join(map(str, PAGE_TOKENS)), GPU_PAGE_TOKENS[0], GPU_PAGE_TOKENS[-1]
        fault = "must be one of {sizes}, on GPUs from {least} to {most}"
        raise PydanticCustomError("page", fault, {"sizes": sizes, "least": least, "most": most})
    return tokens


def _anonymous(anonymous: bool | None, trust_bundle: Path | None) -> bool:
    return trust_bundle is None if anonymous is None else anonymous


def _on_loopback(anonymous: bool | None, info: ValidationInfo) -> bool | None:
    listen, trust_bundle = info.data.get("listen"), info.data.get("trust_bundle")
    if anonymous is False and trust_bundle is None:
        raise PydanticCustomError("trust_bundle", "nobody could ask: name the gateways' public keys in `trust_bundle`")
    if isinstance(listen, Listen) and _anonymous(anonymous, trust_bundle) and not is_loopback(listen.host):
        fault = (
            "whoever reaches {host} could ask without a token; "
            "name the gateways' public keys in `trust_bundle`, {or_else}"
        )
        or_else = "and leave this out" if anonymous else "or listen on 127.0.0.1"
        raise PydanticCustomError("anonymous", fault, {"host": listen.host, "or_else": or_else})
    return anonymous


class EmulateConfig(Config):
    """Pad each step to the planner's step time for this model and accelerator instead of computing it."""

    accelerator: str
    model: str
    cold_start_s: float | None = None


class EngineConfig(Config):
    """The resolved `spec.engine`; sizes in tokens, `kv_bytes` and `host_bytes` in bytes.

    By class: `batch_window_s`, `tpot_s` (the TPOT that prefill must leave to decodes; a class without an entry has no
    promise), `class_weights` (shares of tokens), `class_waiting` (requests in its queue), `class_reserved` (the share
    of pages and slots that less urgent classes leave to it and to more urgent ones).
    `disk_path` keeps up to `disk_bytes` of pages that leave host memory, for this engine and those after it.
    `attention_window`: attention covers this many tokens back, and the first `sink_tokens`; none: the model's own.
    `warm_prefixes`: texts to prefill before the worker is ready.
    `device` that computes (auto: a GPU if there is one). `dtype` of weights and products (auto: bf16 on GPUs, fp32 on
    CPUs), `kv_dtype` of keys and values (auto: the same; fp8, int8 only on GPUs); `products`: how CPUs store weights.
    `batch_invariant`: logits do not depend on what else is computed (on CPUs).
    """

    max_model_len: int | None = Field(default=None, ge=16)
    step_tokens: int = Field(default=512, ge=16)
    max_seqs: Annotated[int, AfterValidator(_within_a_step)] = Field(default_factory=_usual_seqs, ge=1)
    page_tokens: Annotated[int, AfterValidator(_a_size_of_page)] = 64
    kv_bytes: int | None = Field(default=None, ge=1)
    kv_pages: int | None = Field(default=None, ge=2)
    host_bytes: int = Field(default=0, ge=0)
    disk_path: Path | None = None
    disk_bytes: int = Field(default=0, ge=0)
    attention_window: int | None = Field(default=None, ge=1)
    sink_tokens: int = Field(default=0, ge=0)
    prefix_cache: bool = True
    warm_prefixes: list[str] = []
    batching: Literal["continuous", "dynamic", "static"] = "continuous"
    batch_window_s: dict[str, Annotated[float, Field(ge=0, le=1)]] = {
        "interactive": 0.003,
        "batch": 0.02,
        "offline": 0.04,
    }
    tpot_s: dict[str, Annotated[float, Field(gt=0)]] = {}
    class_weights: dict[str, Annotated[float, Field(gt=0)]] = {}
    class_reserved: dict[str, Annotated[float, Field(ge=0, lt=1)]] = {}
    class_waiting: dict[str, Annotated[int, Field(ge=1)]] = {}
    threads: int | None = Field(default=None, ge=1)
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["auto", "fp32", "bf16"] = "auto"
    kv_dtype: Literal["auto", "fp32", "bf16", "fp8", "int8"] = "auto"
    products: Literal["plain", "packed", "both"] = "packed"
    batch_invariant: bool = False
    emulate: EmulateConfig | None = None


class FilterConfig(Config):
    """A filter of the output; `config` is its own. `failure`: whether text passes if the filter fails."""

    name: str
    config: dict[str, str] = {}
    failure: Literal["open", "closed"] = "closed"


class WorkerConfig(Config):
    """The whole configuration of one worker.

    `watchdog_s`: an engine with work that is silent and uses no CPU for this long is killed. It is half of what a
    gateway waits within a stream (`stream_idle_timeout_s`), so that the gateway is informed and can resume elsewhere.
    `metrics`: where `/metrics` and the probes are; none: beside the API.
    `anonymous`: whether requests need no internal token; none: true without `trust_bundle`. Only allowed on loopback.
    `trace_ratio`: share of requests without a traceparent that are traced, if OTEL_* names a collector. `vllm_names`:
    also expose the metrics under vLLM's names. `trust_request_chat_template`: render templates that requests bring,
    which may compute without bound.
    """

    name: str = ""
    service: Annotated[str, StringConstraints(pattern=r"^[^/]+/[^/]+$")]
    revision: str
    pool: str
    model: str
    served_names: Annotated[list[str], Field(min_length=1)]
    listen: Listen
    metrics: Listen | None = None
    trust_bundle: Path | None = None
    anonymous: Annotated[bool | None, AfterValidator(_on_loopback)] = Field(default=None, validate_default=True)
    engine: EngineConfig = EngineConfig()
    filters: list[FilterConfig] = []
    drain_timeout_s: float = Field(default=300.0, gt=0)
    watchdog_s: float = Field(default=30.0, gt=0)
    body_limit: int = Field(default=8 << 20, ge=1024)
    trace_ratio: float = Field(default=0.0, ge=0, le=1)
    vllm_names: bool = True
    trust_request_chat_template: bool = False

    @property
    def open_to_all(self) -> bool:
        """Whether requests need no internal token."""
        return _anonymous(self.anonymous, self.trust_bundle)
