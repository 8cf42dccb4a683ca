"""The model that all engines get: a random Llama of 124.7 M parameters as a Hugging Face folder, the same every time.

Weights are as `transformers` initialises them. Its tokenizer has one word for each id, which is all that a server
needs.
"""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

SEED = 5
VOCAB = 32000
DEVIATION = 0.02
CONFIG: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 768,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "num_key_value_heads": 4,
    "head_dim": 64,
    "intermediate_size": 2048,
    "vocab_size": VOCAB,
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "hidden_act": "silu",
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": None,
    "eos_token_id": None,
}


def write(folder: Path) -> None:
    """Config, weights and tokenizer; some seconds, half a gigabyte."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    save_file(tensors(), folder / "model.safetensors", {"format": "pt"})


def tensors() -> dict[str, Tensor]:
    """All weights by their names in a checkpoint."""
    chance = torch.Generator().manual_seed(SEED)
    hidden, ffn = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    queries, keys = (CONFIG[f"num_{name}_heads"] * CONFIG["head_dim"] for name in ("attention", "key_value"))
    shapes = {
        "self_attn.q_proj": (queries, hidden),
        "self_attn.k_proj": (keys, hidden),
        "self_attn.v_proj": (keys, hidden),
        "self_attn.o_proj": (hidden, queries),
        "mlp.gate_proj": (ffn, hidden),
        "mlp.up_proj": (ffn, hidden),
        "mlp.down_proj": (hidden, ffn),
    }

    def random(rows: int, columns: int) -> Tensor:
        return torch.randn(rows, columns, generator=chance) * DEVIATION

    found = {"model.embed_tokens.weight": random(VOCAB, hidden), "lm_head.weight": random(VOCAB, hidden)}
    found["model.norm.weight"] = torch.ones(hidden)
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        found |= {f"{prefix}{name}.weight": random(*shape) for name, shape in shapes.items()}
        found |= {f"{prefix}{name}_layernorm.weight": torch.ones(hidden) for name in ("input", "post_attention")}
    return found


def _tokenizer() -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": None,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {f"t{token}": token for token in range(VOCAB)}, "unk_token": "t0"},
    }
