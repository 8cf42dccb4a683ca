"""`spec.engine`: how the worker batches, caches, speculates, splits over GPUs, or emulates them."""

from typing import Annotated, Final, Literal

from pydantic import Field

from paceline_core.objects.fields import ApiModel, Bytes, Duration, Label, ModelName, Source, bounded

KVDtype = Literal["auto", "fp32", "bf16", "fp16", "fp8", "int8"]
Batching = Literal["continuous", "dynamic", "static"]
Speculation = Literal["ngram", "draft", "lookahead", "heads"]

PAGE_TOKENS: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Sizes of page that a service may ask for."""
GPU_PAGE_TOKENS: Final = (16, 32, 64, 128)
"""Those that the kernels of GPUs take; a test compares it with theirs."""
GPU_MAX_SEQS: Final = 1024
"""Most requests that they take at once; a test compares it with theirs."""

Degree = Annotated[int, Field(ge=1, le=64)]


class KVCache(ApiModel):
    """The paged key-value cache."""

    dtype: KVDtype | None = None
    """Element type: bf16 or fp32, on GPUs also fp8 (compute capability 8.9 and later) or int8.
    Default: auto, the type that the model is computed in."""
    page_tokens: Annotated[int, Field(ge=PAGE_TOKENS[0], le=PAGE_TOKENS[-1])] | None = None
    """Tokens in a page, a power of two; on GPUs from 16 to 128. Default: 64."""
    attention_window: Annotated[int, Field(ge=64, le=16_777_216)] | None = None
    """Tokens that attention looks back; older pages are freed. At least pageTokens.
    Default: the model's own, usually no window."""
    sink_tokens: Annotated[int, Field(ge=0, le=4096)] | None = None
    """First tokens kept in view although outside attentionWindow. Default: 0. Example: 4."""
    host_offload_bytes: Bytes | None = None
    """Host memory per replica for pages evicted from the GPU, below 64Ti. Needs the prefix cache.
    Default: none. Example: 16Gi."""
    disk_offload_bytes: Bytes | None = None
    """Node's disk per replica for pages that leave host memory: ephemeral storage, gone with the pod. Needs
    hostOffloadBytes. From 1Mi to below 64Ti. Default: none. Example: 200Gi."""


class Speculative(ApiModel):
    """Guess several tokens cheaply, check them in one step."""

    method: Speculation
    """ngram (from the prompt), draft (a small model), lookahead, or heads (extra heads of the model itself)."""
    tokens: Annotated[int, Field(ge=1, le=16)] | None = None
    """Tokens guessed per step. Default: 4."""
    draft_model: Source | None = None
    """Source of the small model for method draft. Example: hf://org/small."""


class Parallel(ApiModel):
    """How one replica is split over its GPUs; tensor x pipeline = gpusPerReplica."""

    tensor: Degree | None = None
    """GPUs that share each layer. Default: gpusPerReplica / pipeline."""
    pipeline: Degree | None = None
    """Stages that the layers are cut into. Default: 1."""
    expert: Degree | None = None
    """GPUs that the experts of a mixture model are spread over. Default: 1."""


class Emulate(ApiModel):
    """Run the real server, scheduler and KV accounting, but pad steps to the planner's time instead of computing."""

    accelerator: Label
    """Built-in accelerator whose speed is emulated. Example: h100."""
    model: ModelName
    """Shape in the planner's catalogue. Example: llama-3.1-8b."""
    cold_start: Duration | None = None
    """Time from start to ready, passed by stages, at most 1h. Default: 30s."""


class Engine(ApiModel):
    """The built-in worker's settings; foreign runtimes are given those that they know. Part of the revision."""

    max_model_len: Annotated[int, Field(ge=16, le=16_777_216)] | None = None
    """Longest prompt plus output, in tokens. Default: what the model was made for. Example: 8192."""
    max_seqs: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Most requests running at once in one replica; on GPUs at most 1024. Default: 64, but at most stepTokens."""
    step_tokens: Annotated[int, Field(ge=16, le=1_048_576)] | None = None
    """Most tokens in one engine step; decodes go first, prefills fill the rest in chunks. At least maxSeqs.
    Default: 2048, but at least maxSeqs."""
    kv_cache: KVCache = KVCache()
    """The paged key-value cache."""
    prefix_cache: bool | None = None
    """Reuse the pages of prompts that begin alike. Default: true."""
    batching: Batching | None = None
    """continuous (requests join and leave each step), dynamic (a batch is closed after batchWindow) or static.
    Default: continuous."""
    batch_invariant: bool | None = None
    """Compute what a request gets independently, bit for bit, of the requests beside it and of how its tokens are cut
    into steps; slower, and on CPUs alone. Default: false."""
    warm_prefixes: Annotated[tuple[Annotated[str, Field(min_length=1, max_length=8192)], ...], bounded(16)] = ()
    """Texts prefilled at start and kept in the prefix cache, at most 16, each shorter than maxModelLen.
    Only whole pages are kept: of a text shorter than pageTokens nothing is. Example: the system prompt."""
    speculative: Speculative | None = None
    """Speculative decoding. Default: none."""
    parallel: Parallel = Parallel()
    """How one replica is split over its GPUs."""
    emulate: Emulate | None = None
    """Emulate a model on an accelerator: no weights are opened, CPU and memory are requested, never GPUs."""
