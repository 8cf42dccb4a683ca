"""Weights that are wrong: every fault is found before anything is served, and names file, tensor and fix."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine import reference
from tests.engine.driver import load
from tests.engine.model.folders import edit, refusal, refused_by_name

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("sharded"), "llama", shard="60KB").folder


@pytest.fixture
def shards(sharded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sharded, tmp_path / "model")


def tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    held = load_file(folder / WEIGHTS)
    change(held)
    save_file(held, folder / WEIGHTS)


@pytest.mark.parametrize("kept", [0, 4, 1000, -1])
def test_a_file_cut_short_is_named(folder: Path, kept: int) -> None:
    path = folder / WEIGHTS
    path.write_bytes(path.read_bytes()[:kept])
    assert refusal(folder).startswith(f"{path}: is damaged or cut short")


def test_a_file_of_something_else_is_named(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes(b"<html>not found</html>" * 50)
    assert "is damaged or cut short" in refusal(folder)


def test_a_folder_without_safetensors_says_what_is_read(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")
    assert "holds neither model.safetensors nor model.safetensors.index.json" in refusal(folder)


def test_a_missing_tensor_is_named(folder: Path) -> None:
    tensors(folder, lambda held: held.pop("model.layers.1.mlp.up_proj.weight"))
    assert "no file holds the tensor model.layers.1.mlp.up_proj.weight" in refusal(folder)


def test_a_missing_output_matrix_is_named(folder: Path) -> None:
    edit(folder / "config.json", tie_word_embeddings=False)
    assert "no file holds the tensor lm_head.weight" in refusal(folder)


def test_a_tensor_that_the_config_does_not_know_is_named(folder: Path) -> None:
    edit(folder / "config.json", num_hidden_layers=1)
    words = f"{folder / WEIGHTS}: holds the tensor model.layers.1.input_layernorm.weight, for which config.json"
    assert refusal(folder).startswith(words)


def test_a_bias_that_the_config_does_not_know_is_named(folder: Path) -> None:
    tensors(folder, lambda held: held.update({"model.layers.0.mlp.up_proj.bias": torch.ones(96)}))
    assert "holds the tensor model.layers.0.mlp.up_proj.bias" in refusal(folder)


def test_buffers_and_a_tied_output_matrix_are_left_aside(folder: Path) -> None:
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}
    tensors(folder, lambda held: held.update({**buffer, "lm_head.weight": held["model.embed_tokens.weight"].clone()}))
    assert load(folder).facts.limits.max_model_len


def test_an_output_matrix_of_another_shape_is_named_although_the_config_ties_it(folder: Path) -> None:
    tensors(folder, lambda held: held.update({"lm_head.weight": torch.ones(1, 64)}))
    assert "lm_head.weight has shape [1, 64], config.json makes it [211, 64]" in refusal(folder)


def test_a_tensor_of_another_shape_is_named_with_both_shapes(folder: Path) -> None:
    edit(folder / "config.json", intermediate_size=100)
    assert "model.layers.0.mlp.gate_proj.weight has shape [96, 64], config.json makes it [100, 64]" in refusal(folder)


def test_a_tensor_of_an_unreadable_type_is_named(folder: Path) -> None:
    tensors(folder, lambda held: held.update({"model.norm.weight": torch.ones(64, dtype=torch.int8)}))
    assert "model.norm.weight has type torch.int8" in refusal(folder)


def test_a_missing_shard_is_named(shards: Path) -> None:
    victim = sorted(shards.glob("model-*.safetensors"))[1]
    victim.unlink()
    assert refusal(shards).startswith(f"{victim}: is missing, but {INDEX} lists it")


def test_a_shard_cut_short_is_named(shards: Path) -> None:
    victim = max(shards.glob("model-*.safetensors"))
    victim.write_bytes(victim.read_bytes()[:-8])
    assert refusal(shards).startswith(f"{victim}: is damaged or cut short")


def test_a_pipe_in_place_of_a_shard_is_named_and_not_waited_for(shards: Path) -> None:
    victim = sorted(shards.glob("model-*.safetensors"))[1]
    victim.unlink()
    os.mkfifo(victim)
    assert refusal(shards).startswith(f"{victim}: is no regular file; copy")


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"weight_map": [1]}', '{"weight_map": {"a": 1}}'])
def test_an_index_that_is_none_is_named(shards: Path, content: str) -> None:
    (shards / INDEX).write_text(content)
    assert refusal(shards).startswith(f"{shards / INDEX}: is not an index of weights")


def test_an_index_cannot_point_outside_the_folder(shards: Path) -> None:
    (shards / INDEX).write_text('{"weight_map": {"a": "../../etc/passwd"}}')
    assert "names files outside the model's folder" in refusal(shards)


def test_an_index_that_names_an_absent_tensor_is_named_with_the_file(shards: Path) -> None:
    files = json.loads((shards / INDEX).read_text())["weight_map"]
    other = next(file for file in files.values() if file != files["model.norm.weight"])
    edit(shards / INDEX, weight_map={**files, "model.norm.weight": other})
    assert refusal(shards).startswith(f"{shards / INDEX}: lists model.norm.weight in {other}, which does not hold it")


def test_of_two_files_that_hold_a_tensor_the_one_that_the_index_names_counts(shards: Path) -> None:
    files = json.loads((shards / INDEX).read_text())["weight_map"]
    for file in set(files.values()) - {files["model.norm.weight"]}:
        held = load_file(shards / file)
        save_file({**held, "model.norm.weight": torch.zeros(64)}, shards / file)
    assert load(shards).decoder.norm.weight.abs().min() > 0


@pytest.mark.parametrize("name", ["qwen3", "llama-one-kv-head-bias"])
def test_every_tensor_that_is_missing_is_named(name: str, tmp_path: Path) -> None:
    reference.write(tmp_path, name)
    held = load_file(tmp_path / WEIGHTS)
    for tensor in held:
        save_file({key: value for key, value in held.items() if key != tensor}, tmp_path / WEIGHTS)
        assert refusal(tmp_path) == f"{tmp_path}: no file holds the tensor {tensor}; copy the whole model again"


@pytest.mark.parametrize("dtype", [torch.float64, torch.int64, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_only_float_types_that_are_computed_with_are_read(folder: Path, dtype: torch.dtype) -> None:
    tensors(folder, lambda held: held.update({"model.embed_tokens.weight": torch.ones(211, 64).to(dtype)}))
    assert f"{folder / WEIGHTS}: model.embed_tokens.weight has type {dtype}" in refusal(folder)


def test_a_header_with_any_byte_changed_is_read_or_refused(folder: Path) -> None:
    path = folder / WEIGHTS
    content = path.read_bytes()
    chance = random.Random(5)
    refused = 0
    for _ in range(60):
        damaged = bytearray(content)
        damaged[chance.randrange(8 + int.from_bytes(content[:8], "little"))] ^= chance.randrange(1, 256)
        path.write_bytes(damaged)
        refused += refused_by_name(folder, load)
    assert refused > 40
