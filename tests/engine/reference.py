"""Tiny random models written by `transformers`, and what `transformers` makes of them in float32."""

import random
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paceline_workers.engine.kv_cache.attention_window import AttentionWindow

torch.set_num_threads(1)

VOCAB = 211
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
DYNAMIC = {"rope_type": "dynamic", "rope_theta": 10000.0, "factor": 3.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 64}
YARN_ALL_FIELDS = {
    **YARN,
    "beta_fast": 8.0,
    "beta_slow": 0.5,
    "mscale": 1.0,
    "mscale_all_dim": 0.5,
    "truncate": False,
}
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
    "dynamic-rope": {"model_type": "llama", "max_position_embeddings": 200, "rope_parameters": DYNAMIC},
    "yarn-rope": {"model_type": "qwen2", "rope_parameters": YARN},
    "yarn-rope-all-fields": {"model_type": "llama", "rope_parameters": YARN_ALL_FIELDS},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "mistral-window": {"model_type": "mistral", "sliding_window": 37},
    "qwen2": {"model_type": "qwen2", "tie_word_embeddings": True},
    "qwen2-window-from-layer-1": {
        "model_type": "qwen2",
        "use_sliding_window": True,
        "sliding_window": 32,
        "max_window_layers": 1,
    },
    "qwen2.5-heads": {
        "model_type": "qwen2",
        "tie_word_embeddings": True,
        "hidden_size": 112,
        "num_attention_heads": 14,
        "head_dim": 8,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
    },
    "qwen3": {"model_type": "qwen3", "tie_word_embeddings": False, "head_dim": 24},
    "qwen3-window-by-layer-types": {
        "model_type": "qwen3",
        "num_hidden_layers": 3,
        "use_sliding_window": True,
        "sliding_window": 5,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    },
}


@dataclass(frozen=True)
class Reference:
    """A model folder and the same model in `transformers`."""

    folder: Path
    model: Any
    _known: dict[tuple[int, ...], Tensor] = field(default_factory=dict)
    _exact: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """[tokens, vocabulary] over everything, in float32."""
        key = tuple(tokens)
        if key not in self._known:
            self._known[key] = _forward(self.model, tokens)
        return self._known[key]

    def exact(self, tokens: Sequence[int]) -> Tensor:
        """The same, computed in float64."""
        key = tuple(tokens)
        if key not in self._exact:
            self._exact[key] = _forward(self._double, tokens)
        return self._exact[key]

    @cached_property
    def error(self) -> float:
        """How far `transformers` in float32 is from float64, at most, over the logits of 260 tokens."""
        chance = random.Random(1)
        tokens = [chance.randrange(self.model.config.vocab_size) for _ in range(260)]
        return float((self.logits(tokens) - self.exact(tokens)).abs().max())

    @cached_property
    def _double(self) -> Any:
        return deepcopy(self.model).double()

    def greedy(self, prompt: Sequence[int], output: Sequence[int]) -> list[int]:
        """The tokens that greedy decoding chooses after `prompt` and each proper prefix of `output`.

        They equal `output` exactly if greedy decoding of `prompt` gives `output`.
        """
        choices: list[int] = self.logits([*prompt, *output]).argmax(-1).tolist()
        return choices[len(prompt) - 1 : -1]


class Masked(Reference):
    """The same under the mask of an attention window, the same one for all layers or one for each of them."""

    attention_windows: tuple[AttentionWindow, ...]

    def __init__(self, folder: Path, model: Any, *attention_windows: AttentionWindow) -> None:
        super().__init__(folder, model)
        object.__setattr__(self, "attention_windows", attention_windows)

    def logits(self, tokens: Sequence[int]) -> Tensor:
        """[tokens, vocabulary] over everything, in float32."""
        return _under(self.model, tokens, self.attention_windows)

    def exact(self, tokens: Sequence[int]) -> Tensor:
        """The same, computed in float64."""
        return _under(self._double, tokens, self.attention_windows)


def mask(attention_window: AttentionWindow, length: int) -> Tensor:
    """[query, key]: which keys a query may attend to, written down plainly."""
    rows = [
        [
            key <= query
            and (
                attention_window.window is None or key > query - attention_window.window or key < attention_window.sinks
            )
            for key in range(length)
        ]
        for query in range(length)
    ]
    return torch.tensor(rows)


@torch.inference_mode()
def _under(model: Any, tokens: Sequence[int], attention_windows: Sequence[AttentionWindow]) -> Tensor:
    """One pass over all tokens; each layer's attention gets its mask in place of the model's own."""
    layers = model.model.layers
    masks = [mask(attention_window, len(tokens)) for attention_window in attention_windows]
    hooks = [
        layer.self_attn.register_forward_pre_hook(_masking(masks[place % len(masks)]), with_kwargs=True)
        for place, layer in enumerate(layers)
    ]
    try:
        rows: Tensor = model(torch.tensor([list(tokens)])).logits[0]
    finally:
        for hook in hooks:
            hook.remove()
    return rows


def _masking(seen: Tensor) -> Any:
    def replace(module: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        dtype = next(module.parameters()).dtype
        added = torch.zeros(seen.shape, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
        return args, {**kwargs, "attention_mask": added[None, None]}

    return replace


@torch.inference_mode()
def _forward(model: Any, tokens: Sequence[int]) -> Tensor:
    """One pass; with dynamic frequencies token by token from the end of the context on, as `generate` does.

    The first part stays below that context, since only then `transformers` forgets the frequencies of the last text.
    """
    whole = len(tokens)
    if model.config.rope_parameters.get("rope_type") == "dynamic":
        whole = min(whole, model.config.max_position_embeddings - 1)
    out = model(torch.tensor([tokens[:whole]]), use_cache=True)
    rows = [out.logits[0]]
    for token in tokens[whole:]:
        out = model(torch.tensor([[token]]), past_key_values=out.past_key_values, use_cache=True)
        rows.append(out.logits[0])
    return torch.cat(rows)


def write(
    folder: Path, name: str, *, dtype: torch.dtype = torch.float32, shard: str = "1GB", seed: int = 0, **sizes: int
) -> Reference:
    """Save the model called `name`; weights are scaled so that activations keep their size and logits differ."""
    fields = {**_SIZES, **MODELS[name], **sizes}
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model(**fields)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            _fill(key, parameter)
    model.to(dtype).save_pretrained(folder, max_shard_size=shard)
    return open_folder(folder)


def open_folder(folder: Path, dtype: torch.dtype = torch.float32) -> Reference:
    """Load it, by default as the exactness contract says: computed in float32."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return Reference(folder, model.eval())


def _fill(name: str, parameter: Tensor) -> None:
    parameter.normal_()
    if name.endswith("norm.weight"):
        parameter.mul_(0.1).add_(1.0)
    elif name.endswith("bias"):
        parameter.mul_(0.3)
    else:
        parameter.div_(parameter.shape[-1] ** 0.5)
