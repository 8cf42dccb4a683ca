"""The shape of a dense decoder: how many layers, how wide, how many heads, and so its parameters and bytes.

Counts are exact for the Llama family (embedding, attention, gated MLP, RMS norms, output matrix): they equal the totals
of the published checkpoints. Known hole: mixture-of-experts, latent attention and encoder models are refused.
"""

from dataclasses import dataclass

from paceline_planner.dtypes import Dtype


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
