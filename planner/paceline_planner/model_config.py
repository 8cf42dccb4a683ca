"""Reads a shape from a model's own config.json, as Hugging Face writes it. Every refusal names the field and the fix.

`from_config` reads what workers compute; `planned_shape` reads more, to plan with. Known hole: latent attention, layers
of other kinds (state spaces, linear attention) and encoders are refused; a sliding window is not seen.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Dtype
from paceline_planner.shapes import FP8, Experts, ModelShape, Quantization

SUPPORTED = ("llama", "mistral", "ministral", "qwen2", "qwen3")
MISTRAL = ("mistral", "ministral")
"""Names of one architecture; the second lists the types of its layers."""
_MIXTURES = {"mixtral": "mistral", "qwen2_moe": "qwen2", "qwen3_moe": "qwen3"}
"""Mixtures of experts, and the architecture that they are besides."""

_MOST, _MOST_LAYERS = 1 << 31, 10_000
_DTYPES = {"float32": Dtype.FP32, "bfloat16": Dtype.BF16, "float16": Dtype.FP16}


def from_config(config: Mapping[str, Any], *, name: str = "") -> ModelShape:
    """The shape in `config`; raises InvalidInput on a missing, malformed or unsupported field.

    A missing `num_key_value_heads` means as many as heads, a missing `head_dim` hidden size over heads, a missing
    `dtype` float32: the defaults of `transformers`. The KV cache has the type of the weights.
    """
    kind = _architecture(config)
    heads, hidden = _count(config, "num_attention_heads"), _count(config, "hidden_size")
    kv_heads = heads if config.get("num_key_value_heads") is None else _count(config, "num_key_value_heads")
    if heads % kv_heads:
        raise InvalidInput("num_key_value_heads", f"{kv_heads} does not divide the {heads} attention heads")
    text = config.get("dtype") or config.get("torch_dtype") or "float32"
    if not isinstance(text, str) or text not in _DTYPES:
        raise InvalidInput("dtype", f"{text!r} is not supported; use one of {', '.join(_DTYPES)}")
    dtype = _DTYPES[text]
    attention_bias = _flag(config, "attention_bias") and kind not in MISTRAL
    return ModelShape(
        name=name or str(config.get("_name_or_path") or kind),
        layers=_count(config, "num_hidden_layers", most=_MOST_LAYERS),
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
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


def planned_shape(config: Mapping[str, Any], *, name: str = "") -> ModelShape:
    """As `from_config`, also of models that only planning knows: mixtures of experts and quantized checkpoints."""
    kind = config.get("model_type")
    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    if kind not in _MIXTURES:
        known = (*SUPPORTED, *_MIXTURES)
        if kind is None:
            raise InvalidInput("model_type", f"is missing; write one of {', '.join(known)}")
        if kind not in SUPPORTED:
            raise InvalidInput("model_type", f"{kind!r} cannot be planned; use one of {', '.join(known)}")
        dense = from_config(plain, name=name)
    else:
        dense = from_config({**plain, "model_type": _MIXTURES[kind]}, name=name)
        dense = replace(dense, experts=_experts(config, dense.layers))
    return replace(dense, quantization=_quantization(config.get("quantization_config")))


def _experts(config: Mapping[str, Any], layers: int) -> Experts:
    count = _count(config, "num_local_experts" if "num_local_experts" in config else "num_experts")
    active = _count(config, "num_experts_per_tok")
    if active > count:
        raise InvalidInput("num_experts_per_tok", f"{active} is over the {count} experts")
    width = _count(config, "moe_intermediate_size" if "moe_intermediate_size" in config else "intermediate_size")
    shared = _count(config, "shared_expert_intermediate_size") if "shared_expert_intermediate_size" in config else 0
    step, plain = config.get("decoder_sparse_step", 1), config.get("mlp_only_layers") or ()
    dense = [layer for layer in range(layers) if layer in plain or (layer + 1) % max(int(step), 1)]
    return Experts(count, active, width, shared, len(dense))


def _quantization(found: Any) -> Quantization | None:
    if not found:
        return None
    method = found.get("quant_method") if isinstance(found, Mapping) else None
    if method in ("awq", "gptq"):
        bits, group = _count(found, "bits"), found.get("group_size") or 128
        scales = (16 + bits) / group if group > 0 else 0.0
        return Quantization(f"int{bits}", bits + scales, Dtype.BF16)
    if method in ("fp8", "fbgemm_fp8"):
        return FP8
    raise InvalidInput("quantization_config", f"method {method!r} cannot be planned; use one of awq, gptq, fp8")


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


def _head_dim(config: Mapping[str, Any], hidden: int, heads: int) -> int:
    if config.get("head_dim") is not None:
        return _count(config, "head_dim")
    if hidden % heads:
        raise InvalidInput("head_dim", f"is missing, and {heads} heads do not divide the hidden size {hidden}")
    return hidden // heads
