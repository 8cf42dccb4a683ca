"""What config.json and generation_config.json say beyond the shape: norms, rotary embedding, window, EOS.

Both spellings of the rotary fields are read: `rope_theta` with `rope_scaling`, and `rope_parameters` with all in one.
A sliding window is served as the context it leaves exact: below its length, windowed and full attention are the same.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_planner.shapes import ModelShape, from_config
from paceline_workers.engine.model.rope import Rope

_MISTRAL_WINDOW = 4096


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Everything the decoder needs to know; `shape.max_context` is already cut to the window."""

    shape: ModelShape
    norm_eps: float
    rope: Rope
    eos_ids: tuple[int, ...]


def read(folder: Path) -> ModelConfig:
    """From a model folder; raises InvalidInput naming file, field and fix."""
    path = folder / "config.json"
    data = _json(path)
    try:
        return _parse(data, eos_ids(folder, data))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.field}", error.message) from None


def eos_ids(folder: Path, data: Mapping[str, Any]) -> tuple[int, ...]:
    """Ids that end a sequence: generation_config.json's, else config.json's."""
    path = folder / "generation_config.json"
    generation = _json(path) if path.is_file() else {}
    ids = generation.get("eos_token_id", data.get("eos_token_id"))
    listed = ids if isinstance(ids, list) else [] if ids is None else [ids]
    if not all(isinstance(number, int) for number in listed):
        raise InvalidInput("eos_token_id", f"{ids!r} is neither a token id nor a list of them")
    return tuple(listed)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text())
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}; a model folder needs it") from None
    except ValueError as error:
        raise InvalidInput(str(path), f"is not JSON ({error}); copy it again") from None
    if not isinstance(data, dict):
        raise InvalidInput(str(path), "is not a JSON object; copy it again")
    return data


def _parse(data: Mapping[str, Any], eos: tuple[int, ...]) -> ModelConfig:
    shape = from_config(data)
    if (activation := data.get("hidden_act", "silu")) != "silu":
        raise InvalidInput("hidden_act", f"{activation!r} is not supported; only silu is")
    shape = replace(shape, max_context=min(shape.max_context, _window(data) or shape.max_context))
    eps = data.get("rms_norm_eps", 1e-6)
    if not isinstance(eps, float | int) or eps <= 0:
        raise InvalidInput("rms_norm_eps", f"{eps!r} is not a positive number")
    return ModelConfig(shape, float(eps), _rope(data, shape), eos)


def _window(data: Mapping[str, Any]) -> int | None:
    """Tokens of the sliding window if the model has one; Mistral's default is what `transformers` assumes."""
    mistral = data.get("model_type") == "mistral"
    if not mistral and not data.get("use_sliding_window", False):
        return None
    window = data.get("sliding_window", _MISTRAL_WINDOW if mistral else None)
    if window is not None and (not isinstance(window, int) or window < 1):
        raise InvalidInput("sliding_window", f"{window!r} is not a positive whole number")
    return window


def _rope(data: Mapping[str, Any], shape: ModelShape) -> Rope:
    scaling = data.get("rope_parameters") or data.get("rope_scaling") or {}
    field = "rope_parameters" if data.get("rope_parameters") else "rope_scaling"
    if data.get("partial_rotary_factor", scaling.get("partial_rotary_factor", 1.0)) != 1.0:
        raise InvalidInput("partial_rotary_factor", "partly rotated heads are not supported")
    theta = scaling.get("rope_theta", data.get("rope_theta", 10000.0))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    try:
        return Rope.of(kind, shape.head_dim, float(theta), scaling)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(field, f"{kind!r} with {dict(scaling)} cannot be used: {error}") from None
