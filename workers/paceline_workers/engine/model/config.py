"""What config.json says beyond the shape: norms, rotary embedding, windows; and beside it what generation_config says.

Both spellings of the rotary fields are read: `rope_theta` with `rope_scaling`, and `rope_parameters` with all in one,
perhaps for each type of layer. Where a file has both, `rope_scaling` counts, as in `transformers`.
"""

import math
from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_planner.shapes import ModelShape, from_config
from paceline_workers.engine.memory.sight import AttentionWindow
from paceline_workers.engine.model.files import read_object
from paceline_workers.engine.model.generation import Generation, read_generation
from paceline_workers.engine.model.rope import Rope
from paceline_workers.engine.model.windows import FULL, SLIDING, attention_windows


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything the decoder needs to know.

    `shape.max_context` counts what a rotary scaling adds; `attention_windows`: what each layer sees.
    """

    shape: ModelShape
    norm_eps: float
    rope: Rope
    sights: tuple[AttentionWindow, ...]
    generation: Generation


def read(folder: Path) -> ModelConfig:
    """From a model folder; raises InvalidInput naming file, field and fix."""
    path = folder / "config.json"
    data = read_object(path)
    generation = read_generation(folder, data)
    try:
        return _parse(data, generation)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.field}", error.message) from None


def _parse(data: Mapping[str, Any], generation: Generation) -> ModelConfig:
    shape = from_config(data)
    if (activation := data.get("hidden_act", "silu")) != "silu":
        raise InvalidInput("hidden_act", f"{activation!r} is not supported; only silu is")
    eps = data.get("rms_norm_eps", 1e-6)
    if not isinstance(eps, float | int) or not 0 < eps < math.inf:
        raise InvalidInput("rms_norm_eps", f"{eps!r} is not a positive number")
    seen = attention_windows(data, shape.layers)
    rope = _rope(data, shape, {SLIDING if sight.window else FULL for sight in seen})
    return ModelConfig(replace(shape, max_context=rope.context), float(eps), rope, seen, generation)


def _rope(data: Mapping[str, Any], shape: ModelShape, types: Set[str]) -> Rope:
    field = "rope_scaling" if data.get("rope_scaling") else "rope_parameters"
    scaling = _of_all_layers(field, data.get(field) or {}, types)
    if "original_max_position_embeddings" in data:
        scaling = {**scaling, "original_max_position_embeddings": data["original_max_position_embeddings"]}
    rotated = [each.get("partial_rotary_factor") for each in (data, scaling)]
    if any(factor not in (None, 1.0) for factor in rotated):
        raise InvalidInput("partial_rotary_factor", "partly rotated heads are not supported")
    theta = scaling.get("rope_theta", data.get("rope_theta", 10000.0))
    if isinstance(theta, bool) or not isinstance(theta, float | int):
        raise InvalidInput("rope_theta", f"{theta!r} is not a number")
    kind = str(scaling.get("rope_type", scaling.get("type", "default")))
    try:
        return Rope.of(kind, shape.head_dim, float(theta), shape.max_context, scaling)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        raise InvalidInput(field, f"{kind!r} with {scaling} cannot be used: {error}") from None


def _of_all_layers(field: str, scaling: object, types: Set[str]) -> Mapping[str, Any]:
    """The parameters, or those of the layers' types where they are given for each: the same for all."""
    if not isinstance(scaling, dict):
        raise InvalidInput(field, f"{scaling!r} is not an object")
    if not any(isinstance(value, dict) for value in scaling.values()):
        return scaling
    first, *others = (scaling.get(name) for name in sorted(types))
    if not isinstance(first, dict) or any(other != first for other in others):
        words = f"must give the same parameters to layers of {' and '.join(sorted(types))}; others are not supported"
        raise InvalidInput(field, words)
    return first
