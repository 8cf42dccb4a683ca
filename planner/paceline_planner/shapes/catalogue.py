"""Shapes of well-known models, for planning and for workers that emulate them."""

from collections.abc import Mapping

from paceline_core.errors import InvalidInput
from paceline_planner.shapes.model import ModelShape

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
