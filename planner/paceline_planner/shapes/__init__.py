"""Model shapes: what they count, well-known ones, and reading them from a Hugging Face config.json (`model`)."""

from paceline_planner.shapes.model import (
    CATALOGUE,
    LLAMA_3_1_8B,
    LLAMA_3_3_70B,
    MISTRAL,
    QWEN3_32B,
    SUPPORTED,
    ModelShape,
    from_config,
    shape,
)

__all__ = [
    "CATALOGUE",
    "LLAMA_3_1_8B",
    "LLAMA_3_3_70B",
    "MISTRAL",
    "QWEN3_32B",
    "SUPPORTED",
    "ModelShape",
    "from_config",
    "shape",
]
