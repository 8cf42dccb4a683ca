"""Model folders that are wrong: every fault is found before anything is served, and names file, field and fix."""

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.engine import reference
from tests.engine.driver import Driver, load
from tests.engine.manual import ManualTimer
from tests.engine.peer import submit
from tests.engine.reference import DYNAMIC, LINEAR, LLAMA3, YARN

from paceline_core.errors import InvalidInput
from paceline_workers.config import EngineConfig
from paceline_workers.engine.channel import PeerGone
from paceline_workers.engine.loop import started
from paceline_workers.engine.memory.sight import Sight
from paceline_workers.engine.model import config
from paceline_workers.engine.scheduling import Request
from paceline_workers.engine.torch_cpu import TorchBackend
from paceline_workers.files import LIMIT

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("whole"), "llama").folder


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return reference.write(tmp_path_factory.mktemp("sharded"), "llama", shard="60KB").folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "model")


@pytest.fixture
def shards(sharded: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sharded, tmp_path / "model")


def refusal(folder: Path, **engine: Any) -> str:
    with pytest.raises(InvalidInput) as caught:
        load(folder, **engine)
    return str(caught.value)


def refused_by_name(folder: Path, read: Callable[[Path], object]) -> bool:
    """Whether it is refused, which must then name the file or the folder."""
    try:
        read(folder)
    except InvalidInput as error:
        return str(error).startswith(str(folder)) or pytest.fail(str(error))
    return False


def edit(path: Path, **fields: object) -> None:
    """Set fields of a JSON file; None removes one."""
    data = json.loads(path.read_text()) | fields
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def tensors(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    held = load_file(folder / WEIGHTS)
    change(held)
    save_file(held, folder / WEIGHTS)


# --- weights


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
    more = {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8), "lm_head.weight": torch.ones(1, 64)}
    tensors(folder, lambda held: held.update(more))
    assert load(folder).facts.limits.max_model_len


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


# --- config.json


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"model_type": "gpt2"}, "config.json: model_type: 'gpt2' is not supported"),
        ({"hidden_act": "gelu"}, "config.json: hidden_act: 'gelu' is not supported; only silu is"),
        ({"num_hidden_layers": None}, "config.json: num_hidden_layers: is missing"),
        ({"rms_norm_eps": float("nan")}, "config.json: rms_norm_eps: nan is not a positive number"),
        ({"rms_norm_eps": "tiny"}, "config.json: rms_norm_eps: 'tiny' is not a positive number"),
        ({"rope_parameters": {"rope_type": "longrope"}}, "config.json: rope_parameters: 'longrope' with"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 0}}, "factor must be a positive number"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2, "attention_factor": -1}}, "attention_factor must be"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2, "beta_slow": "x"}}, "rope_parameters: 'yarn' with"),
        ({"rope_parameters": None, "rope_theta": "10000"}, "config.json: rope_theta: '10000' is not a number"),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": None}}, "rope_theta: None is not a number"),
        ({"rope_parameters": {"rope_type": "dynamic", "factor": 0.5}}, "factor must be at least 1"),
        ({"rope_parameters": {**LLAMA3, "high_freq_factor": 1.0}}, "high_freq_factor must be greater than"),
        ({"rope_parameters": {"rope_theta": 1}}, "rope_theta must be a number above 1"),
        ({"rope_parameters": [1]}, "rope_parameters: [1] is not an object"),
        ({"rope_parameters": {"rope_type": "linear"}}, "cannot be used: 'factor'"),
        ({"rope_parameters": {"rope_theta": "big"}}, "config.json: rope_theta: 'big' is not a number"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor: partly rotated heads are not supported"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": "wide"},
            "sliding_window: 'wide' is not a positive",
        ),
        ({"model_type": "qwen2", "use_sliding_window": "yes"}, "use_sliding_window: 'yes' is neither true nor false"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": -1},
            "max_window_layers: -1 is not a whole number",
        ),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "layer_types": ["full_attention"]},
            "layer_types: must name one of full_attention, sliding_attention for each of the 2 layers",
        ),
    ],
)
def test_a_config_that_cannot_be_served_is_refused_by_field(
    folder: Path, fields: dict[str, object], message: str
) -> None:
    edit(folder / "config.json", **fields)
    assert message in refusal(folder)


@pytest.mark.parametrize("value", [None, -1, 0, 1.5, float("nan"), 10**30, True, "x", [], {}, [[]], {"factor": "x"}])
def test_a_config_with_any_field_changed_is_read_or_refused(folder: Path, value: object) -> None:
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    also = ("rope_scaling", "sliding_window", "use_sliding_window", "layer_types", "max_window_layers", "head_dim")
    for kind in ("llama", "mistral", "qwen2"):
        for field in (*fields, *also):
            path.write_text(json.dumps({**fields, "model_type": kind, "use_sliding_window": True, field: value}))
            refused_by_name(folder, config.read)


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is not JSON"), ("[" * 100_000, "is not JSON"), ("[]", "is not a JSON object")]
)
def test_a_broken_config_is_named(folder: Path, content: str, message: str) -> None:
    (folder / "config.json").write_text(content)
    assert f"{folder / 'config.json'}: {message}" in refusal(folder)


def test_a_missing_config_is_named(folder: Path) -> None:
    (folder / "config.json").unlink()
    assert f"{folder / 'config.json'}: cannot be read" in refusal(folder)


def test_a_pipe_in_place_of_a_config_is_named_and_not_waited_for(folder: Path) -> None:
    (folder / "config.json").unlink()
    os.mkfifo(folder / "config.json")
    assert f"{folder / 'config.json'}: cannot be read: it is no regular file" in refusal(folder)


def test_a_pipe_in_place_of_a_shard_is_named_and_not_waited_for(shards: Path) -> None:
    victim = sorted(shards.glob("model-*.safetensors"))[1]
    victim.unlink()
    os.mkfifo(victim)
    assert refusal(shards).startswith(f"{victim}: is no regular file; copy")


def test_a_config_without_end_is_not_read(folder: Path) -> None:
    os.truncate(folder / "config.json", LIMIT + 1)
    assert f"{folder / 'config.json'}: cannot be read: it has more than 256 MiB" in refusal(folder)


def test_eos_comes_from_the_generation_config_first(folder: Path) -> None:
    edit(folder / "generation_config.json", eos_token_id=[5, 6])
    assert config.read(folder).generation.eos_ids == (5, 6)
    (folder / "generation_config.json").unlink()
    assert config.read(folder).generation.eos_ids == (210,)
    edit(folder / "config.json", eos_token_id=None)
    assert config.read(folder).generation.eos_ids == ()


@pytest.mark.parametrize("ids", ["</s>", [1, "x"], True, 1.5])
def test_an_eos_that_is_no_id_is_refused_naming_the_file_that_says_it(folder: Path, ids: object) -> None:
    edit(folder / "generation_config.json", eos_token_id=ids)
    text = f"{folder / 'generation_config.json'}: eos_token_id: {ids!r} is neither a token id nor a list"
    assert refusal(folder).startswith(text)
    (folder / "generation_config.json").unlink()
    edit(folder / "config.json", eos_token_id=ids)
    assert refusal(folder).startswith(f"{folder / 'config.json'}: eos_token_id")


def test_the_makers_sampling_is_told_and_nothing_else(folder: Path) -> None:
    advised = {"temperature": 0.6, "top_p": 0.95, "top_k": 20, "min_p": 0.0, "repetition_penalty": 1.05}
    edit(folder / "generation_config.json", **advised, max_length=20, do_sample=True)
    assert started(load(folder).facts).defaults == advised
    (folder / "generation_config.json").unlink()
    assert started(load(folder).facts).defaults == {}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("temperature", -0.1, "is not a number of at least 0"),
        ("temperature", float("nan"), "is not a number of at least 0"),
        ("top_p", 0, "is not a number above 0 and at most 1"),
        ("top_p", "0.9", "is not a number above 0 and at most 1"),
        ("top_k", 2.5, "is not a whole number of at least -1"),
        ("min_p", True, "is not a number from 0 to 1"),
        ("repetition_penalty", 0, "is not a number above 0"),
    ],
)
def test_sampling_that_cannot_be_is_refused(folder: Path, field: str, value: object, message: str) -> None:
    edit(folder / "generation_config.json", **{field: value})
    assert refusal(folder) == f"{folder / 'generation_config.json'}: {field}: {value!r} {message}"


@pytest.mark.parametrize(
    ("fields", "windows"),
    [
        ({"model_type": "mistral"}, (4096, 4096)),
        ({"model_type": "mistral", "sliding_window": 100}, (100, 100)),
        ({"model_type": "qwen2", "sliding_window": 100}, (None, None)),
        ({"model_type": "qwen2", "sliding_window": 100, "use_sliding_window": True}, (None, None)),
        ({"model_type": "qwen2", "use_sliding_window": True, "max_window_layers": 1}, (None, 4096)),
        (
            {
                "model_type": "qwen2",
                "use_sliding_window": True,
                "sliding_window": 7,
                "layer_types": ["sliding_attention", "full_attention"],
            },
            (7, None),
        ),
        ({"model_type": "llama", "sliding_window": 100}, (None, None)),
    ],
)
def test_windows_are_those_of_transformers_and_bound_no_context(
    folder: Path, fields: dict[str, object], windows: tuple[int | None, ...]
) -> None:
    edit(folder / "config.json", **fields)
    settings = config.read(folder)
    assert tuple(sight.window for sight in settings.sights) == windows
    assert settings.shape.max_context == 512


def test_a_mistral_config_whose_window_is_null_has_none(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "mistral", "sliding_window": None}))
    assert config.read(folder).sights == (Sight(), Sight())


@pytest.mark.parametrize(
    ("scaling", "context"),
    [
        ({"rope_type": "linear", "factor": 4.0}, 512),
        ({"rope_type": "dynamic", "factor": 4.0}, 2048),
        ({"rope_type": "yarn", "factor": 4.0}, 2048),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}, 512),
        ({"rope_type": "yarn", "factor": None, "original_max_position_embeddings": 128}, 512),
    ],
)
def test_a_rotary_scaling_lengthens_the_context(folder: Path, scaling: dict[str, object], context: int) -> None:
    edit(folder / "config.json", rope_parameters=scaling)
    assert config.read(folder).shape.max_context == context


@pytest.mark.parametrize("scaling", [LLAMA3, LINEAR, DYNAMIC, YARN], ids=["llama3", "linear", "dynamic", "yarn"])
@pytest.mark.parametrize("key", ["rope_type", "type"])
def test_the_older_spelling_of_rotary_fields_means_the_same(folder: Path, scaling: dict[str, Any], key: str) -> None:
    edit(folder / "config.json", rope_parameters=scaling)
    new = config.read(folder).rope
    old = {name: value for name, value in scaling.items() if name not in ("rope_theta", "rope_type")}
    edit(
        folder / "config.json",
        rope_parameters=None,
        rope_theta=scaling["rope_theta"],
        rope_scaling={**old, key: scaling["rope_type"]},
    )
    assert config.read(folder).rope == new


# --- memory


def test_the_pool_is_as_large_as_configured(whole: Path) -> None:
    assert load(whole, kv_pages=40).facts.pages == 40
    page = load(whole).facts.page_bytes
    assert page == 16 * 2 * 2 * 2 * 16 * 4
    assert load(whole, kv_bytes=50 * page).facts.pages == 50


def test_by_default_the_pool_holds_all_slots_at_full_length(whole: Path) -> None:
    facts = load(whole, max_seqs=3, max_model_len=100).facts
    assert facts.pages == 3 * 7


def test_without_a_length_the_pool_bounds_it(whole: Path) -> None:
    assert load(whole, kv_pages=3).facts.limits.max_model_len == 48


def test_loading_is_told_by_stages(whole: Path) -> None:
    assert list(load(whole).facts.stages) == ["config", "load", "warm"]


def test_loading_ends_when_its_peer_does(whole: Path) -> None:
    def gone(_: float) -> None:
        raise PeerGone("gone")

    with pytest.raises(PeerGone):
        TorchBackend.load(EngineConfig(), f"file://{whole}", ManualTimer(), gone)


def test_a_request_stops_at_the_models_own_eos(folder: Path) -> None:
    expected, backend = reference.open_folder(folder), load(folder)
    prompt = [1, 2, 3]
    free = Driver(backend)
    free.submit("a", prompt, 30)
    free.drain()
    text = free.text("a")
    assert text == expected.greedy(prompt, text)
    edit(folder / "generation_config.json", eos_token_id=text[5])
    again = load(folder)
    stopped = Driver(again)
    stopped.core.submit(Request.of(submit("a", prompt, 30), again.facts.eos_ids, 0.0))
    stopped.drain()
    assert stopped.text("a") == text[: text.index(text[5]) + 1]
    assert stopped.events[-1].finish == "stop"


def test_eos_is_ignored_when_asked() -> None:
    entry = Request.of(submit("a", [1, 2, 3], stop_ids=[7], ignore_eos=True), (5, 6), 0.0)
    assert entry.stop_ids == {7}
    assert Request.of(submit("a", [1, 2, 3], stop_ids=[7]), (5, 6), 0.0).stop_ids == {5, 6, 7}
