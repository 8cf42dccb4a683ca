"""`spec.model`, `spec.runtime`, `spec.engine`, `spec.filters`: weights, program, its settings, checks on text."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from paceline_core.objects.fields import (
    ENV_PATTERN,
    LINE_PATTERN,
    REVISION_PATTERN,
    ApiModel,
    Bytes,
    Duration,
    Label,
    ModelName,
    ProcessText,
    Source,
    Subdomain,
    Switch,
    bounded,
    keyed,
)

KVDtype = Literal["auto", "fp32", "bf16", "fp16", "fp8", "int8"]
Batching = Literal["continuous", "dynamic", "static"]
Speculation = Literal["ngram", "draft", "lookahead", "heads"]

PAGE_TOKENS: Final = (8, 16, 32, 64, 128, 256, 512, 1024)
"""Page sizes that a service may request."""
GPU_PAGE_TOKENS: Final = (16, 32, 64, 128)
"""Page sizes that the GPU kernels support; a test compares it with theirs."""
GPU_MAX_SEQS: Final = 1024
"""The most requests that the GPU kernels run at once; a test compares it with theirs."""

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


SCHEMES: Final = ("builtin", "hf", "pvc", "file", "s3", "gs", "oci")

Quantization = Literal["none", "int8", "int4", "fp8"]


class Adapter(ApiModel):
    """One LoRA adapter; clients ask for it as `<model>:<adapter>`."""

    name: Label
    """Name of the adapter, at most 63 characters of a-z, 0-9 and dashes. Example: legal."""
    source: Source
    """Where its weights are, in the same forms as the model's source except builtin. Example: hf://acme/legal-lora."""


class Model(ApiModel):
    """The model to serve. Every field here is part of the service's revision."""

    source: Source
    """Where the weights are: builtin://demo (in the worker's package), hf://org/name, pvc://claim/path, file:///path
    (a path inside the container), s3://bucket/prefix, gs://bucket/prefix or oci://registry/repository:tag."""
    revision: Annotated[str, Field(pattern=REVISION_PATTERN, max_length=128)] | None = None
    """Branch, tag or commit of an hf:// source. Default: main, pinned to its commit when the revision is made."""
    served_name: ModelName | None = None
    """Name clients use in `model`; `namespace/name` of the service always works too. Of several objects that claim a
    name the oldest one's namespace has it. Default: the service's name. Example: llama-3.1-8b."""
    quantization: Quantization | None = None
    """Weight format to convert to while loading. Default: none (as stored)."""
    tokenizer: Source | None = None
    """Where the tokenizer is, if not beside the weights; same forms as source. Example: hf://org/tokenizer."""
    adapters: Annotated[tuple[Adapter, ...], bounded(64), keyed("name")] = ()
    """LoRA adapters served on top of the model, at most 64."""

    @property
    def scheme(self) -> str:
        """The part of the source before `://`."""
        return self.source.partition("://")[0]


RuntimeName = Literal["paceline", "vllm", "sglang", "trtllm", "tgi", "lmdeploy", "llamacpp", "ollama", "custom"]


class KeyReference(ApiModel):
    """One key of a Secret or ConfigMap in the service's namespace."""

    name: Subdomain
    """Name of the Secret or ConfigMap."""
    key: Annotated[str, Field(min_length=1, max_length=253)]
    """Key within it. Example: token."""
    optional: bool | None = None
    """Start without the variable if the key is missing. Default: false."""


class EnvSource(ApiModel):
    """Where a variable's value comes from; exactly one of the fields."""

    secret_key_ref: KeyReference | None = None
    """A key of a Secret. Not available in local mode."""
    config_map_key_ref: KeyReference | None = None
    """A key of a ConfigMap. Not available in local mode."""


class EnvVar(ApiModel):
    """One environment variable of the runtime's container."""

    name: Annotated[str, Field(pattern=ENV_PATTERN, max_length=128)]
    """Name of the variable. Example: HF_HOME."""
    value: ProcessText | None = None
    """Its value, taken literally. Exactly one of value and valueFrom."""
    value_from: EnvSource | None = None
    """Where its value comes from. Exactly one of value and valueFrom."""


class WorkloadRef(ApiModel):
    """An existing Deployment: the operator never writes to it; the autoscaler scales it unless the policy is advise."""

    name: Subdomain
    """Name of the Deployment in the service's namespace."""
    kind: Literal["Deployment"] | None = None
    """Kind of the workload. Default and only choice: Deployment."""


class Runtime(ApiModel):
    """What serves the model. Every field here is part of the service's revision."""

    name: RuntimeName = "paceline"
    """The serving program. Default: paceline, the built-in worker. `custom` speaks the OpenAI API and brings its own
    image, or names an existing Deployment."""
    image: Annotated[str, Field(pattern=LINE_PATTERN, min_length=1, max_length=512)] | None = None
    """Container image. Default: the install's image for this runtime; needed for custom."""
    args: Annotated[tuple[ProcessText, ...], bounded(64)] = ()
    """Arguments added after those that paceline gives, at most 64. Example: ["--enforce-eager"]."""
    env: Annotated[tuple[EnvVar, ...], bounded(64), keyed("name")] = ()
    """Environment variables added to the container, at most 64."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """Port of the runtime's OpenAI API. Default: the runtime's own, 8000 for custom."""
    workload_ref: WorkloadRef | None = None
    """Serve from an existing Deployment of a foreign runtime instead of making one."""


Stage = Literal["input", "output"]

WORDS: Final = "words"
WORDS_SETTINGS: Final = ("words", "action", "replacement")
WORDS_ACTIONS: Final = ("replace", "end")
NO_WORDS: Final = "filter words needs at least one word: set config.words, several separated by commas, like cat, dog"


def listed_words(config: Mapping[str, str]) -> list[str]:
    """The words listed in the settings of the filter `words`."""
    return [word for part in config.get("words", "").split(",") if (word := part.strip())]


class Filter(ApiModel):
    """One filter; filters of a stage run in the order written."""

    name: Label
    """Name of a filter. words (stage output) replaces listed words, or ends the answer at the first of them."""
    stage: Stage
    """input (the prompt) or output (the answer)."""
    config: Annotated[dict[str, Annotated[str, Field(max_length=1024)]], bounded(32)] = {}
    """Settings of the filter, as strings, at most 32. words takes words (separated by commas), action (replace, which
    is the default, or end) and replacement (default: ***)."""
    failure: Switch = "closed"
    """What a failing filter does: closed refuses the request (default), open lets it pass."""
