"""Which layers see only a sliding window of the tokens before them, as config.json says it for each architecture.

Mistral: those that `layer_types` lists, without it all layers, unless `sliding_window` is null (absent: 4,096, as
`transformers` assumes). Qwen2 and Qwen3: with
`use_sliding_window`, those that `layer_types` lists, else those from `max_window_layers` (28) on. Llama: none.
A window that the configuration asks for narrows the layers that see more, and leaves its first tokens in their sight.
"""

from collections.abc import Mapping
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_planner.shapes import MISTRAL
from paceline_workers.engine.memory.sight import AttentionWindow

_WINDOW = 4096
_FIRST_LAYER = 28
FULL, SLIDING = "full_attention", "sliding_attention"
_TYPES = (FULL, SLIDING)


def attention_windows(data: Mapping[str, Any], layers: int) -> tuple[AttentionWindow, ...]:
    """What each layer sees."""
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
