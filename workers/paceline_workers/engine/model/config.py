"""Reads config.json beyond the model's shape (norms, rotary embedding, attention windows) and generation_config.json.

It reads both spellings of the rotary fields: `rope_theta` with `rope_scaling`, and `rope_parameters` with all in one,
possibly for each type of layer. If a file has both, `rope_scaling` wins, as in `transformers`.

Each architecture has its own fields for layers with a sliding window. Mistral: the layers that `layer_types` lists,
without it all layers, unless `sliding_window` is null (absent: 4,096, the default of `transformers`). Qwen2 and Qwen3:
with `use_sliding_window`, the layers that `layer_types` lists, else those from `max_window_layers` (28). Llama: none.
A configured window narrows the layers that attend to more, and keeps its first tokens visible.

generation_config.json, which a folder may lack, holds the ids that end a sequence and the sampling that the model's
authors advise. These defaults apply if a request gives no value, as in vLLM; `do_sample` is not read, since temperature
0 expresses it.
"""

import math
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_planner.model_config import MISTRAL, from_config
from paceline_planner.shapes import ModelShape
from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.model.rope import Rope
from paceline_workers.model_source import read_object

_WINDOW = 4096
_FIRST_LAYER = 28
FULL, SLIDING = "full_attention", "sliding_attention"
_TYPES = (FULL, SLIDING)


def attention_windows(data: Mapping[str, Any], layers: int) -> tuple[AttentionWindow, ...]:
    """The attention window of each layer."""
    return tuple(map(AttentionWindow, _windows(data, layers)))


def _windows(data: Mapping[str, Any], layers: int) -> tuple[int | None, ...]:
    kind = data["model_type"]
    if kind == "llama" or (kind not in MISTRAL and not _used(data)) or (size := _size(data)) is None:
        return (None,) * layers
    return tuple(size if slides else None for slides in _sliding(data, layers))


def _size(data: Mapping[str, Any]) -> int | None:
    size = data.get("sliding_window", _WINDOW)
    if size is not None and not _counts(size, at_least=1):
        raise InvalidInput("sliding_window", f"{size!r} is not a positive whole number")
    return None if size is None else int(size)


def _used(data: Mapping[str, Any]) -> bool:
    used = data.get("use_sliding_window", False)
    if not isinstance(used, bool):
        raise InvalidInput("use_sliding_window", f"{used!r} is neither true nor false")
    return used


def _sliding(data: Mapping[str, Any], layers: int) -> list[bool]:
    types = data.get("layer_types")
    if types is None and data["model_type"] in MISTRAL:
        return [True] * layers
    if types is None:
        first = data.get("max_window_layers", _FIRST_LAYER)
        if not _counts(first, at_least=0):
            raise InvalidInput("max_window_layers", f"{first!r} is not a whole number")
        return [layer >= first for layer in range(layers)]
    if not isinstance(types, list) or len(types) != layers or any(name not in _TYPES for name in types):
        raise InvalidInput("layer_types", f"must name one of {', '.join(_TYPES)} for each of the {layers} layers")
    return [name == SLIDING for name in types]


def _counts(value: object, *, at_least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= at_least


NAME = "generation_config.json"
_RANGES: Mapping[str, tuple[Callable[[float], bool], str]] = {
    "temperature": (lambda value: value >= 0, "a number of at least 0"),
    "top_p": (lambda value: 0 < value <= 1, "a number above 0 and at most 1"),
    "top_k": (lambda value: value >= -1 and value == int(value), "a whole number of at least -1"),
    "min_p": (lambda value: 0 <= value <= 1, "a number from 0 to 1"),
    "repetition_penalty": (lambda value: value > 0, "a number above 0"),
}


@dataclass(frozen=True, slots=True)
class Generation:
    """`defaults`: by the field names of requests, only those that the file has."""

    eos_ids: tuple[int, ...] = ()
    defaults: Mapping[str, float] = field(default_factory=dict)


def read_generation(folder: Path, config: Mapping[str, Any]) -> Generation:
    """Read a model folder, EOS ids else from its config.json; raises InvalidInput naming file and field."""
    path = folder / NAME
    data = read_object(path) if path.is_file() else {}
    source = path if "eos_token_id" in data else folder / "config.json"
    eos = eos_ids(source, data.get("eos_token_id", config.get("eos_token_id")))
    given = {name: data[name] for name in _RANGES if data.get(name) is not None}
    return Generation(eos, {name: _checked(path, name, value) for name, value in given.items()})


def eos_ids(path: Path, ids: object) -> tuple[int, ...]:
    """One id, a list of them, or none."""
    listed = ids if isinstance(ids, list) else [] if ids is None else [ids]
    if not all(isinstance(number, int) and not isinstance(number, bool) for number in listed):
        raise InvalidInput(f"{path}: eos_token_id", f"{ids!r} is neither a token id nor a list of them")
    return tuple(listed)


def _checked(path: Path, name: str, value: object) -> float:
    holds, words = _RANGES[name]
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and holds(value):
        return float(value)
    raise InvalidInput(f"{path}: {name}", f"{value!r} is not {words}")


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """All settings of the decoder.

    `shape.max_context` includes the effect of a rotary scaling; `attention_windows`: one for each layer.
    """

    shape: ModelShape
    norm_eps: float
    rope: Rope
    attention_windows: tuple[AttentionWindow, ...]
    generation: Generation


def read(folder: Path) -> ModelConfig:
    """Read a model folder; raises InvalidInput naming file, field and fix."""
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
    rope = _rope(data, shape, {SLIDING if attention_window.window else FULL for attention_window in seen})
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
    """The parameters; if they are given for each type of layer, those of the types in use, which must be equal."""
    if not isinstance(scaling, dict):
        raise InvalidInput(field, f"{scaling!r} is not an object")
    if not any(isinstance(value, dict) for value in scaling.values()):
        return scaling
    first, *others = (scaling.get(name) for name in sorted(types))
    if not isinstance(first, dict) or any(other != first for other in others):
        words = f"must give the same parameters to layers of {' and '.join(sorted(types))}; others are not supported"
        raise InvalidInput(field, words)
    return first
