"""config.json of each supported family, and each way it can be wrong."""

from typing import Any

import pytest
from tests.every import cases

from paceline_core.errors import InvalidInput
from paceline_planner.hardware import Dtype
from paceline_planner.model_config import from_config, planned_shape
from paceline_planner.shapes import LLAMA_3_1_8B, MIXTRAL_8X7B, QWEN3_30B_A3B, QWEN3_32B, ModelShape

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "mlp_bias": False,
    "torch_dtype": "bfloat16",
}
QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_hidden_layers": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
QWEN2: dict[str, Any] = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 32768,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
MISTRAL: dict[str, Any] = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 32000,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(("config", "expected"), [(LLAMA, LLAMA_3_1_8B), (QWEN3, QWEN3_32B)], ids=["llama", "qwen3"])
def test_a_published_config_gives_the_shape_of_the_catalogue(config: dict[str, Any], expected: ModelShape) -> None:
    assert from_config(config, name=expected.name) == expected


@pytest.mark.parametrize(
    ("config", "total"), [(QWEN2, 494_032_768), (MISTRAL, 7_241_732_096)], ids=["qwen2.5-0.5b", "mistral-7b"]
)
def test_a_published_config_gives_the_published_total(config: dict[str, Any], total: int) -> None:
    assert from_config(config).parameters == total


def test_what_a_config_leaves_out_takes_the_defaults_of_transformers() -> None:
    absent = {"num_key_value_heads", "torch_dtype", "tie_word_embeddings"}
    shape = from_config({key: value for key, value in LLAMA.items() if key not in absent})
    assert (shape.kv_heads, shape.head_dim, shape.weight_dtype, shape.tied) == (32, 128, Dtype.FP32, False)
    assert shape.name == "llama"


def test_biases_of_llama_are_counted_when_the_config_has_them() -> None:
    biased = from_config({**LLAMA, "attention_bias": True, "mlp_bias": True})
    per_layer = (4096 + 2 * 1024) + 4096 + (2 * 14336 + 4096)
    assert biased.parameters - LLAMA_3_1_8B.parameters == 32 * per_layer


@cases(
    "field",
    [
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
        "max_position_embeddings",
    ],
)
@cases("bad", [None, 0, -1, 2.5, "32", True])
def test_a_missing_or_malformed_count_is_refused_by_name(field: str, bad: object) -> None:
    with pytest.raises(InvalidInput) as caught:
        from_config({**LLAMA, field: bad})
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("change", "field", "fix"),
    [
        ({"model_type": "gemma3"}, "model_type", "use one of llama, mistral, ministral, qwen2, qwen3"),
        ({"model_type": None}, "model_type", "use one of"),
        ({"quantization_config": {"bits": 4}}, "quantization_config", "use the original weights"),
        ({"torch_dtype": "float64"}, "dtype", "use one of float32, bfloat16, float16"),
        ({"num_key_value_heads": 5}, "num_key_value_heads", "does not divide the 32 attention heads"),
        ({"hidden_size": 4097}, "head_dim", "do not divide the hidden size 4097"),
        ({"tie_word_embeddings": "no"}, "tie_word_embeddings", "neither true nor false"),
    ],
)
def test_an_unsupported_config_is_refused_with_field_and_fix(change: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(InvalidInput, match=fix) as caught:
        from_config({**LLAMA, **change})
    assert caught.value.field == field


MIXTRAL: dict[str, Any] = {
    **MISTRAL,
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": None,
}
QWEN3_MOE: dict[str, Any] = {
    **QWEN3,
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


@cases(("config", "expected"), [(MIXTRAL, MIXTRAL_8X7B), (QWEN3_MOE, QWEN3_30B_A3B), (LLAMA, LLAMA_3_1_8B)])
def test_a_mixture_of_experts_is_planned_with_and_not_served(config: dict[str, Any], expected: ModelShape) -> None:
    assert planned_shape(config, name=expected.name) == expected
    if expected.experts:
        with pytest.raises(InvalidInput, match="use one of llama, mistral"):
            from_config(config)


def test_layers_without_experts_are_counted_as_dense() -> None:
    experts = planned_shape({**QWEN3_MOE, "mlp_only_layers": [0, 1], "decoder_sparse_step": 2}).experts
    assert experts is not None
    assert experts.dense_layers == 1 + 24


@cases(
    ("method", "bits", "gigabytes"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 4.15625, 5.73),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, 8.0, 9.08),
        ({"quant_method": "fp8"}, 8.0, 9.08),
        ({}, None, 16.06),
    ],
)
def test_a_quantized_checkpoint_takes_its_bits(method: dict[str, Any], bits: float | None, gigabytes: float) -> None:
    shape = planned_shape({**LLAMA, "quantization_config": method})
    assert (shape.quantization.bits if shape.quantization else None) == bits
    assert round(shape.weight_bytes / 1e9, 2) == gigabytes


@cases(
    ("change", "message"),
    [
        ({"model_type": "deepseek_v3"}, "model_type: 'deepseek_v3' cannot be planned; use one of llama, .*qwen3_moe"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok: 9 is over the 8 experts"),
        ({"quantization_config": {"quant_method": "hqq"}}, "method 'hqq' cannot be planned; use one of awq, gptq"),
    ],
)
def test_what_cannot_be_planned_is_refused_by_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        planned_shape({**MIXTRAL, **change})
