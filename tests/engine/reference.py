"""Tiny random models written by `transformers`, and what `transformers` makes of them in float32."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

torch.set_num_threads(1)

VOCAB = 211
_LANGUAGE_MODEL: Any = transformers.AutoModelForCausalLM
_SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": None,
    "eos_token_id": 210,
    "pad_token_id": None,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", "tie_word_embeddings": True},
    "llama-untied-odd-heads": {
        "model_type": "llama",
        "tie_word_embeddings": False,
        "hidden_size": 90,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "head_dim": 10,
    },
    "llama-one-kv-head-bias": {
        "model_type": "llama",
        "num_key_value_heads": 1,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "llama3-rope": {"model_type": "llama", "rope_parameters": LLAMA3},
    "linear-rope": {"model_type": "llama", "rope_parameters": LINEAR},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": False, "head_dim": 24},
}


@dataclass(frozen=True)
class Reference:
    """A model folder and the same model in `transformers`."""

    folder: Path
    model: Any

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int]) -> Tensor:
        """[tokens, vocabulary] of one forward pass over everything."""
        logits: Tensor = self.model(torch.tensor([list(tokens)])).logits[0]
        return logits

    def greedy(self, prompt: Sequence[int], output: Sequence[int]) -> list[int]:
        """The tokens that greedy decoding chooses after `prompt` and each proper prefix of `output`.

        They equal `output` exactly if greedy decoding of `prompt` gives `output`.
        """
        choices: list[int] = self.logits([*prompt, *output]).argmax(-1).tolist()
        return choices[len(prompt) - 1 : -1]


def write(
    folder: Path, name: str, *, dtype: torch.dtype = torch.float32, shard: str = "1GB", seed: int = 0
) -> Reference:
    """Save the model called `name`; weights are scaled so that activations keep their size and logits differ."""
    fields = {**_SIZES, **MODELS[name]}
    config = transformers.AutoConfig.for_model(**fields)
    torch.manual_seed(seed)
    model = _LANGUAGE_MODEL.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            _fill(key, parameter)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    return open_folder(folder)


def open_folder(folder: Path) -> Reference:
    """Load it as the exactness contract says: computed in float32."""
    model = _LANGUAGE_MODEL.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    return Reference(folder, model.eval())


def _fill(name: str, parameter: Tensor) -> None:
    parameter.normal_()
    if name.endswith("norm.weight"):
        parameter.mul_(0.1).add_(1.0)
    elif name.endswith("bias"):
        parameter.mul_(0.3)
    else:
        parameter.div_(parameter.shape[-1] ** 0.5)
