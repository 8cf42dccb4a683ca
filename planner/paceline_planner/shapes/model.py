"""The shape of a dense decoder: how many layers, how wide, how many heads, and so its parameters and bytes.

Counts are exact for the Llama family (embedding, attention, gated MLP, RMS norms, output matrix): they equal the totals
of the published checkpoints. Known hole: mixture-of-experts, latent attention and encoder models are refused.

Shapes of well-known models, for planning and for workers that emulate them.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Dtype


@dataclass(frozen=True, slots=True)
class ModelShape:
    """Sizes of one model. `ffn` is the inner width of the MLP, `tied` says that embedding and output are one matrix.

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
