"""Model shapes: what they count (`model`), well-known ones (`catalogue`), from a config.json (`huggingface`)."""

from paceline_planner.shapes.huggingface import MISTRAL, SUPPORTED, from_config
from paceline_planner.shapes.model import CATALOGUE, LLAMA_3_1_8B, LLAMA_3_3_70B, QWEN3_32B, ModelShape, shape

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
