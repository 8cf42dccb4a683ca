"""The shape of a decoder: its layers, widths, heads and experts, and so its parameters and bytes.

Counts are exact for the Llama family (embedding, attention, gated MLP or mixture of them, RMS norms, output matrix):
they equal the totals of the published checkpoints. `model_config` reads shapes from a Hugging Face config.json.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Dtype


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts in place of the MLP: each token passes `active` of `count` experts of inner width `ffn`.

    `shared`: inner width of the experts that every token passes, in sum; `dense_layers`: layers with a plain MLP.
    """

    count: int
    active: int
    ffn: int
    shared: int = 0
    dense_layers: int = 0

    def touched(self, tokens: int) -> float:
        """Experts of a layer that so many tokens need, if each token chooses evenly: E·(1 - (1 - k/E)^t)."""
        return self.count * (1 - (1 - self.active / self.count) ** tokens)


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the matrices of the layers are stored; embedding, output matrix and norms keep the model's own type.

    `bits`: of one weight, its share of scales and zero points included; `computed`: the type of its products.
    """

    name: str
    bits: float
    computed: Dtype


FP8 = Quantization("fp8", 8.0, Dtype.FP8)
INT8 = Quantization("int8", 8.0, Dtype.INT8)
INT4 = Quantization("int4", 4 + (16 + 4) / 128, Dtype.BF16)
"""In groups of 128, each with a scale of 16 bits and a zero point of 4, as AWQ and GPTQ store them; it is widened to
bf16 before it is multiplied."""
QUANTIZATIONS: Mapping[str, Quantization] = {item.name: item for item in (FP8, INT8, INT4)}


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
    experts: Experts | None = None
    quantization: Quantization | None = None

    @property
    def attention_matrices(self) -> int:
        """Parameters of one layer's projections."""
        return 2 * self.hidden * (self.heads + self.kv_heads) * self.head_dim

    @property
    def layer_matrices(self) -> int:
        """Parameters of one dense layer that are multiplied with every token."""
        return self.attention_matrices + 3 * self.hidden * self.ffn

    @property
    def layer_vectors(self) -> int:
        """Parameters of one layer in norms and biases."""
        queries, keys = self.heads * self.head_dim, self.kv_heads * self.head_dim
        biases = self.qkv_bias * (queries + 2 * keys) + self.output_bias * self.hidden
        return (
            2 * self.hidden + biases + self.mlp_bias * (2 * self.ffn + self.hidden) + self.qk_norm * 2 * self.head_dim
        )

    def matrices(self, experts: float) -> float:
        """Parameters of all layers' matrices with so many of each layer's routed experts."""
        if self.experts is None:
            return self.layers * self.layer_matrices
        mixed, each = self.layers - self.experts.dense_layers, 3 * self.hidden
        router = self.hidden * self.experts.count + bool(self.experts.shared) * self.hidden
        passed = experts * self.experts.ffn + self.experts.shared
        mixture = self.attention_matrices + router + each * passed
        return self.experts.dense_layers * self.layer_matrices + mixed * mixture

    @property
    def stored_matrices(self) -> int:
        """Parameters of all layers' matrices."""
        return round(self.matrices(self.experts.count if self.experts else 0))

    @property
    def active_matrices(self) -> int:
        """Those of them that one token is multiplied with."""
        return round(self.matrices(self.experts.active if self.experts else 0))

    @property
    def vocabulary_matrix(self) -> int:
        """Parameters of the embedding, and of the output matrix."""
        return self.vocab * self.hidden

    @property
    def vocabulary(self) -> int:
        """Parameters of both, a tied matrix counted once."""
        return self.vocabulary_matrix * (1 if self.tied else 2)

    @property
    def parameters(self) -> int:
        return self.vocabulary + self.stored_matrices + self.layers * self.layer_vectors + self.hidden

    @property
    def weight_bytes(self) -> int:
        """Bytes of the checkpoint and, whole, of the device memory that it takes."""
        vectors = self.layers * self.layer_vectors + self.hidden
        return round(self.matrix_bytes(self.stored_matrices)) + (self.vocabulary + vectors) * self.weight_dtype.size

    def matrix_bytes(self, parameters: float) -> float:
        """Bytes of so many parameters of the layers' matrices."""
        return parameters * (self.quantization.bits / 8 if self.quantization else self.weight_dtype.size)

    def step_matrix_bytes(self, tokens: int) -> float:
        """Bytes of the layers' matrices that a step of so many tokens reads."""
        return self.matrix_bytes(self.matrices(self.experts.touched(tokens) if self.experts else 0))

    @property
    def read_bytes(self) -> int:
        """Bytes that a step of one token reads: matrices and the output matrix; of the embedding, a row at most."""
        return round(self.step_matrix_bytes(1)) + self.vocabulary_matrix * self.weight_dtype.size

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes of keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_dim * self.kv_dtype.size

    @property
    def mlp_width(self) -> int:
        """Inner width that one token passes in a layer."""
        if self.experts is None:
            return self.ffn
        return self.experts.active * self.experts.ffn + self.experts.shared


LLAMA_3_2_1B = ModelShape(
    "llama-3.2-1b", layers=16, hidden=2048, heads=32, kv_heads=8, head_dim=64, ffn=8192, vocab=128256,
    max_context=131072, tied=True,
)  # fmt: skip
"""Source: config.json of meta-llama/Llama-3.2-1B; 1,235,814,400 parameters."""

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

LLAMA_3_1_405B = ModelShape(
    "llama-3.1-405b", layers=126, hidden=16384, heads=128, kv_heads=8, head_dim=128, ffn=53248, vocab=128256,
    max_context=131072,
)  # fmt: skip
"""Source: config.json of meta-llama/Llama-3.1-405B; 405,853,388,800 parameters."""

QWEN3_0_6B = ModelShape(
    "qwen3-0.6b", layers=28, hidden=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, vocab=151936,
    max_context=40960, tied=True, qk_norm=True,
)  # fmt: skip
"""Source: config.json of Qwen/Qwen3-0.6B; 596,049,920 parameters."""

QWEN3_14B = ModelShape(
    "qwen3-14b", layers=40, hidden=5120, heads=40, kv_heads=8, head_dim=128, ffn=17408, vocab=151936,
    max_context=40960, qk_norm=True,
)  # fmt: skip
"""Source: config.json of Qwen/Qwen3-14B; 14,768,307,200 parameters."""

QWEN3_30B_A3B = ModelShape(
    "qwen3-30b-a3b", layers=48, hidden=2048, heads=32, kv_heads=4, head_dim=128, ffn=6144, vocab=151936,
    max_context=40960, qk_norm=True, experts=Experts(128, 8, 768),
)  # fmt: skip
"""Source: config.json of Qwen/Qwen3-30B-A3B; 30,532,122,624 parameters."""

MIXTRAL_8X7B = ModelShape(
    "mixtral-8x7b", layers=32, hidden=4096, heads=32, kv_heads=8, head_dim=128, ffn=14336, vocab=32000,
    max_context=32768, experts=Experts(8, 2, 14336),
)  # fmt: skip
"""Source: config.json of mistralai/Mixtral-8x7B-v0.1; 46,702,792,704 parameters."""

CATALOGUE: Mapping[str, ModelShape] = {
    item.name: item
    for item in (
        LLAMA_3_2_1B, LLAMA_3_1_8B, LLAMA_3_3_70B, LLAMA_3_1_405B, QWEN3_0_6B, QWEN3_14B, QWEN3_32B, QWEN3_30B_A3B,
        MIXTRAL_8X7B,
    )
}  # fmt: skip


def shape(name: str) -> ModelShape:
    """The shape of that name; raises InvalidInput naming those that exist."""
    if name not in CATALOGUE:
        raise InvalidInput("model", f"{name!r} is not a known shape; use one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]
