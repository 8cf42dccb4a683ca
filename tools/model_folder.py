"""Write a Hugging Face model folder by hand: config.json, safetensors in one file or in shards, generation_config.json.

Tensor names, shapes and config fields are those that `transformers` expects of Llama, Mistral, Qwen2 and Qwen3, so a
folder written here is the same to every reader as a downloaded one. Known hole: dense models of these four only.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


@dataclass(frozen=True, slots=True)
class Decoder:
    """A decoder's kind and sizes, under the names of config.json; `model_type` is a key of CLASSES."""

    model_type: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = True


def config(decoder: Decoder, dtype: torch.dtype, *, eos: int) -> dict[str, Any]:
    """The content of config.json."""
    return {
        "architectures": [CLASSES[decoder.model_type]],
        **asdict(decoder),
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0,
        "attention_dropout": 0.0,
        "initializer_range": 0.02,
        "bos_token_id": None,
        "eos_token_id": eos,
        "pad_token_id": eos,
        "use_cache": True,
        "torch_dtype": str(dtype).removeprefix("torch."),
        **({"sliding_window": None} if decoder.model_type == "mistral" else {}),
        **({"use_sliding_window": False} if decoder.model_type.startswith("qwen") else {}),
    }


def tensor_shapes(decoder: Decoder) -> dict[str, tuple[int, ...]]:
    """Every tensor of the checkpoint and its shape, in the order of the forward pass."""
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (decoder.vocab_size, decoder.hidden_size)}
    for layer in range(decoder.num_hidden_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in _layer(decoder)}
    shapes["model.norm.weight"] = (decoder.hidden_size,)
    if not decoder.tie_word_embeddings:
        shapes["lm_head.weight"] = (decoder.vocab_size, decoder.hidden_size)
    return shapes


def _layer(decoder: Decoder) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, ffn = decoder.hidden_size, decoder.intermediate_size
    queries, keys = decoder.num_attention_heads * decoder.head_dim, decoder.num_key_value_heads * decoder.head_dim
    yield "input_layernorm.weight", (hidden,)
    for name, width in (("q_proj", queries), ("k_proj", keys), ("v_proj", keys)):
        yield f"self_attn.{name}.weight", (width, hidden)
        if decoder.model_type == "qwen2":
            yield f"self_attn.{name}.bias", (width,)
    if decoder.model_type == "qwen3":
        yield "self_attn.q_norm.weight", (decoder.head_dim,)
        yield "self_attn.k_norm.weight", (decoder.head_dim,)
    yield "self_attn.o_proj.weight", (hidden, queries)
    yield "post_attention_layernorm.weight", (hidden,)
    yield "mlp.gate_proj.weight", (ffn, hidden)
    yield "mlp.up_proj.weight", (ffn, hidden)
    yield "mlp.down_proj.weight", (hidden, ffn)


def write_config(folder: Path, content: Mapping[str, Any]) -> None:
    """config.json, and the part of it that decoding loops read as generation_config.json."""
    write_json(folder / "config.json", content)
    generation = {key: content[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    write_json(folder / "generation_config.json", generation)


def write_weights(folder: Path, tensors: Mapping[str, torch.Tensor], *, shards: int = 1) -> None:
    """model.safetensors, or `shards` numbered files of about equal tensor counts and their index."""
    if shards == 1:
        _save(folder / "model.safetensors", tensors)
        return
    names = list(tensors)
    cuts = [round(part * len(names) / shards) for part in range(shards + 1)]
    files = {f"model-{part + 1:05}-of-{shards:05}.safetensors": cut for part, cut in enumerate(pairwise(cuts))}
    for file, (start, end) in files.items():
        _save(folder / file, {name: tensors[name] for name in names[start:end]})
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    places = {name: file for file, (start, end) in files.items() for name in names[start:end]}
    index = {"metadata": {"total_size": total}, "weight_map": places}
    write_json(folder / "model.safetensors.index.json", index)


def _save(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    save_file(dict(tensors), path, {"format": "pt"})
    path.chmod(0o644)  # save_file leaves 0600, which a worker that runs as another user could not open


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Indented JSON with a last newline, as people and diffs like it."""
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
