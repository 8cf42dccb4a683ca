"""Read a Hugging Face config.json into a ModelShape; every refusal names the field and what would be right."""

from collections.abc import Mapping
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Dtype
from paceline_planner.shapes.model import ModelShape

SUPPORTED = ("llama", "mistral", "ministral", "qwen2", "qwen3")
MISTRAL = ("mistral", "ministral")
"""The same; the second names the types of its layers."""

_MOST, _MOST_LAYERS = 1 << 31, 10_000
_DTYPES = {"float32": Dtype.FP32, "bfloat16": Dtype.BF16, "float16": Dtype.FP16}


def from_config(config: Mapping[str, Any], *, name: str = "") -> ModelShape:
    """The shape behind `config`; raises InvalidInput on a missing, malformed or unsupported field.

    A missing `num_key_value_heads` means as many as heads, a missing `head_dim` hidden size over heads, a missing
    `dtype` float32: the defaults of `transformers`. The KV cache takes the type of the weights.
    """
    kind = _architecture(config)
    heads, hidden = _count(config, "num_attention_heads"), _count(config, "hidden_size")
    dtype = _dtype(config)
    attention_bias = _flag(config, "attention_bias") and kind not in MISTRAL
    return ModelShape(
        name=name or str(config.get("_name_or_path") or kind),
        layers=_count(config, "num_hidden_layers", most=_MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=_kv_heads(config, heads),
        head_dim=_head_dim(config, hidden, heads),
        ffn=_count(config, "intermediate_size"),
        vocab=_count(config, "vocab_size"),
        max_context=_count(config, "max_position_embeddings"),
        tied=_flag(config, "tie_word_embeddings"),
        qkv_bias=attention_bias or kind == "qwen2",
        output_bias=attention_bias and kind != "qwen2",
        mlp_bias=_flag(config, "mlp_bias") and kind == "llama",
        qk_norm=kind == "qwen3",
        weight_dtype=dtype,
        kv_dtype=dtype,
    )


def _architecture(config: Mapping[str, Any]) -> str:
    kind = config.get("model_type")
    if kind not in SUPPORTED:
        raise InvalidInput("model_type", f"{kind!r} is not supported; use one of {', '.join(SUPPORTED)}")
    if config.get("quantization_config"):
        raise InvalidInput("quantization_config", "quantized checkpoints are not supported; use the original weights")
    return str(kind)


def _count(config: Mapping[str, Any], field: str, *, most: int = _MOST) -> int:
    value = config.get(field)
    if value is None:
        raise InvalidInput(field, "is missing; config.json must give it as a positive whole number")
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise InvalidInput(field, f"{value!r} is not a positive whole number")
    if value > most:
        raise InvalidInput(field, f"{value} is over {most}, the most that is read")
    return value


def _flag(config: Mapping[str, Any], field: str) -> bool:
    value = config.get(field, False)
    if not isinstance(value, bool):
        raise InvalidInput(field, f"{value!r} is neither true nor false")
    return value


def _kv_heads(config: Mapping[str, Any], heads: int) -> int:
    kv_heads = heads if config.get("num_key_value_heads") is None else _count(config, "num_key_value_heads")
    if heads % kv_heads:
        raise InvalidInput("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    return kv_heads


def _head_dim(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    if config.get("head_dim") is not None:
        return _count(config, "head_dim")
    if hidden % heads:
        raise InvalidInput("head_dim", f"is missing, and {heads} heads do not divide the hidden size {hidden}")
    return hidden // heads


def _dtype(config: Mapping[str, Any]) -> Dtype:
    text = config.get("dtype") or config.get("torch_dtype") or "float32"
    if not isinstance(text, str) or text not in _DTYPES:
        raise InvalidInput("dtype", f"{text!r} is not supported; use one of {', '.join(_DTYPES)}")
    return _DTYPES[text]
