"""The shape of a dense decoder: its layers, widths and heads, and so its parameters and bytes.

Counts are exact for the Llama family (embedding, attention, gated MLP, RMS norms, output matrix): they equal the totals
of the published checkpoints. A shape is read from a Hugging Face config.json; every refusal names the field and the
fix. Known hole: mixture-of-experts, latent attention and encoder models are refused.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Dtype


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of one model. `ffn` is the inner width of the MLP; `tied`: embedding and output are one matrix.

    qkv_bias, output_bias, mlp_bias: biases of those projections; qk_norm: RMS norms over each query and key head.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_context: int
    tied: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    weight_dtype: Dtype = Dtype.BF16
    kv_dtype: Dtype = Dtype.BF16

    @property
    def layer_matrices(self) -> int:
        """Parameters of one layer that are multiplied with every token."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        return 2 * self.hidden * (queries + keys) + 3 * self.hidden * self.ffn

    @property
    def layer_vectors(self) -> int:
        """Parameters of one layer in norms and biases."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        biases = self.qkv_bias * (queries + 2 * keys) + self.output_bias * self.hidden
        return (
            2 * self.hidden + biases + self.mlp_bias * (2 * self.ffn + self.hidden) + self.qk_norm * 2 * self.head_dim
        )

    @property
    def vocabulary_matrix(self) -> int:
        """Parameters of the embedding, and of the output matrix."""
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All parameters, a tied matrix counted once."""
        matrices = self.vocabulary_matrix * (1 if self.tied else 2)
        return matrices + self.layers * (self.layer_matrices + self.layer_vectors) + self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of the checkpoint and, whole, of the device memory that it takes."""
        return self.parameters * self.weight_dtype.size

    @property
    def read_bytes(self) -> int:
        """Bytes that every step reads: all matrices and the output matrix; of the embedding, a few rows at most."""
        return (self.layers * self.layer_matrices + self.vocabulary_matrix) * self.weight_dtype.size

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_dtype.size


LLAMA_3_1_8B = ModelShape(
    "llama-3.1-8b", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=128256,
    max_context=131072,
)  # fmt: skip
"""Source: config.json of meta-llama/Llama-3.1-8B; 8,030,261,248 parameters."""

QWEN3_32B = ModelShape(
    "qwen3-32b", layers=64, hidden=5120, heads=64, kv_heads=8, head_dim=128, ffn=25600, vocab=151936,
    max_context=40960, qk_norm=True,
)  # fmt: skip
"""Source: config.json of Qwen/Qwen3-32B; 32,762,123,264 parameters."""

LLAMA_3_3_70B = ModelShape(
    "llama-3.3-70b", layers=80, hidden=8192, heads=64, kv_heads=8, head_dim=128, ffn=28672, vocab=128256,
    max_context=131072,
)  # fmt: skip
"""Source: config.json of meta-llama/Llama-3.3-70B-Instruct; 70,553,706,496 parameters."""

CATALOGUE: Mapping[str, ModelShape] = {item.name: item for item in (LLAMA_3_1_8B, QWEN3_32B, LLAMA_3_3_70B)}


def shape(name: str) -> ModelShape:
    """The shape of that name; raises InvalidInput naming those that exist."""
    if name not in CATALOGUE:
        raise InvalidInput("model", f"{name!r} is not a known shape; use one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


SUPPORTED = ("llama", "mistral", "ministral", "qwen2", "qwen3")
MISTRAL = ("mistral", "ministral")
"""Names of one architecture; the second lists the types of its layers."""

_MOST, _MOST_LAYERS = 1 << 31, 10_000
_DTYPES = {"float32": Dtype.FP32, "bfloat16": Dtype.BF16, "float16": Dtype.FP16}


def from_config(config: Mapping[str, Any], *, name: str = "") -> ModelShape:
    """The shape in `config`; raises InvalidInput on a missing, malformed or unsupported field.

    A missing `num_key_value_heads` means as many as heads, a missing `head_dim` hidden size over heads, a missing
    `dtype` float32: the defaults of `transformers`. The KV cache has the type of the weights.
    """
    kind = _architecture(config)
    heads, hidden = _count(config, "num_attention_heads"), _count(config, "hidden_size")
    kv_heads = heads if config.get("num_key_value_heads") is None else _count(config, "num_key_value_heads")
    if heads % kv_heads:
        raise InvalidInput("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    text = config.get("dtype") or config.get("torch_dtype") or "float32"
    if not isinstance(text, str) or text not in _DTYPES:
        raise InvalidInput("dtype", f"{text!r} is not supported; use one of {', '.join(_DTYPES)}")
    dtype = _DTYPES[text]
    attention_bias = _flag(config, "attention_bias") and kind not in MISTRAL
    return ModelShape(
        name=name or str(config.get("_name_or_path") or kind),
        layers=_count(config, "num_hidden_layers", most=_MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=_head_dim(config, hidden, heads),
        ffn=_count(config, "intermediate_size"),
        vocab=_count(config, "vocab_size"),
        max_context=_count(config, "max_position_embeddings"),
        tied=_flag(config, "tie_word_embeddings"),
        qkv_bias=attention_bias or kind == "qwen2",
        output_bias=attention_bias and kind != "qwen2",
        mlp_bias=_flag(config, "mlp_bias") and kind == "llama",
        qk_norm=kind == "qwen3",
        weight_dtype=dtype,
        kv_dtype=dtype,
    )


def _architecture(config: Mapping[str, Any]) -> str:
    kind = config.get("model_type")
    if kind not in SUPPORTED:
        raise InvalidInput("model_type", f"{kind!r} is not supported; use one of {', '.join(SUPPORTED)}")
    if config.get("quantization_config"):
        raise InvalidInput("quantization_config", "quantized checkpoints are not supported; use the original weights")
    return str(kind)


def _count(config: Mapping[str, Any], field: str, *, most: int = _MOST) -> int:
    value = config.get(field)
    if value is None:
        raise InvalidInput(field, "is missing; config.json must give it as a positive whole number")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(field, f"{value!r} is not a positive whole number")
    if value > most:
        raise InvalidInput(field, f"{value} is over {most}, the most that is read")
    return value


def _flag(config: Mapping[str, Any], field: str) -> bool:
    value = config.get(field, False)
    if not isinstance(value, bool):
        raise InvalidInput(field, f"{value!r} is neither true nor false")
    return value


def _head_dim(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    if config.get("head_dim") is not None:
        return _count(config, "head_dim")
    if hidden % heads:
        raise InvalidInput("head_dim", f"is missing, and {heads} heads do not divide the hidden size {hidden}")
    return hidden // heads
