"""Random folders of every supported architecture, as `transformers` and the planner see them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tools import random_model
from tools.model_folder import CLASSES, Decoder
from tools.random_model import write

from paceline_planner.model_config import from_config

ARCHITECTURES = pytest.mark.parametrize("architecture", sorted(CLASSES))


def small(architecture: str, **changes: Any) -> Decoder:
    sizes = {
        "vocab_size": 1536,
        "hidden_size": 48,
        "intermediate_size": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
    }
    return Decoder(model_type=architecture, **{**sizes, **changes})


def load(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    model, info = auto.from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert not info["mismatched_keys"]
    return model


@ARCHITECTURES
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_every_tensor_is_where_transformers_expects_it(tmp_path: Path, architecture: str, tied: bool) -> None:
    write(tmp_path, small(architecture, tie_word_embeddings=tied))
    model = load(tmp_path)
    assert type(model).__name__ == CLASSES[architecture]
    with torch.inference_mode():
        logits = model(torch.arange(4, 60)[None]).logits
    assert logits.shape == (1, 56, 1536)
    assert torch.isfinite(logits).all()
    assert logits.std() > 0.1


@ARCHITECTURES
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_the_planner_counts_the_parameters_of_each_architecture(tmp_path: Path, architecture: str, tied: bool) -> None:
    write(tmp_path, small(architecture, tie_word_embeddings=tied))
    config = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert from_config(config).parameters == load(tmp_path).num_parameters()


def test_shards_hold_the_same_tensors_as_one_file(tmp_path: Path) -> None:
    one, three = tmp_path / "one", tmp_path / "three"
    write(one, small("qwen3"))
    write(three, small("qwen3"), shards=3)
    assert not (three / "model.safetensors").exists()
    assert len(list(three.glob("model-0000?-of-00003.safetensors"))) == 3
    whole, parts = load(one).state_dict(), load(three).state_dict()
    assert all(torch.equal(whole[name], parts[name]) for name in whole)


def test_the_index_names_every_tensor_and_the_total_size(tmp_path: Path) -> None:
    write(tmp_path, small("llama"), shards=2)
    index = json.loads((tmp_path / "model.safetensors.index.json").read_text(encoding="utf-8"))
    model = load(tmp_path)
    assert set(index["weight_map"]) == set(model.state_dict()) - {"lm_head.weight"}
    assert index["metadata"]["total_size"] == model.num_parameters() * 4


def test_a_seed_decides_every_byte(tmp_path: Path) -> None:
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        write(tmp_path / name, small("llama"), seed=seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c


def test_the_flags_of_the_command_reach_the_folder(tmp_path: Path) -> None:
    flags = "--architecture mistral --dtype bfloat16 --hidden 32 --ffn 64 --layers 1 --heads 2 --kv-heads 1 --untied"
    random_model.main([str(tmp_path / "m"), *flags.split(), "--head-dim", "8", "--vocab", "2000", "--context", "512"])
    config = json.loads((tmp_path / "m" / "config.json").read_text(encoding="utf-8"))
    expected = {
        "model_type": "mistral",
        "torch_dtype": "bfloat16",
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 8,
        "vocab_size": 2000,
        "max_position_embeddings": 512,
        "tie_word_embeddings": False,
    }
    assert expected.items() <= config.items()
    assert load(tmp_path / "m").dtype == torch.bfloat16


def test_the_folder_brings_the_demo_tokenizer_with_its_template(tmp_path: Path) -> None:
    write(tmp_path, small("llama"))
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], add_generation_prompt=True, tokenize=False
    )
    assert text == "<|user|>Hi<|end|><|assistant|>"
