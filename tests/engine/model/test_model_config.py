"""A model's config.json: what is read of it, and what is refused by file, field and fix."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from tests.engine.model.folders import edit, refusal, refused_by_name
from tests.engine.reference import DYNAMIC, LINEAR, LLAMA3, YARN

from paceline_workers.engine.kv_cache.attention_window import AttentionWindow
from paceline_workers.engine.model import config
from paceline_workers.model_source import LIMIT


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


def test_a_config_without_end_is_not_read(folder: Path) -> None:
    os.truncate(folder / "config.json", LIMIT + 1)
    assert f"{folder / 'config.json'}: cannot be read: it has more than 256 MiB" in refusal(folder)


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
    assert tuple(attention_window.window for attention_window in settings.attention_windows) == windows
    assert settings.shape.max_context == 512


def test_a_mistral_config_whose_window_is_null_has_none(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_type": "mistral", "sliding_window": None}))
    assert config.read(folder).attention_windows == (AttentionWindow(), AttentionWindow())


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
