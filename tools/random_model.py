"""`python -m tools.random_model FOLDER --architecture qwen3 ...`: a model folder with random weights of any small size.

Its text is noise, but its arithmetic is that of the real architecture: for tests of loaders and engines against
`transformers`. The tokenizer is the demo model's, so the vocabulary may be larger than the tokenizer but never smaller.
Same seed, same bytes.
"""

import argparse
import math
import shutil
import sys
from pathlib import Path

import torch

from paceline_workers.demo import FOLDER
from tools.demo_model.tokenizer import END_ID
from tools.model_folder import CLASSES, Decoder, config, tensor_shapes, write_config, write_weights

TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def write(
    folder: Path, decoder: Decoder, *, dtype: torch.dtype = torch.float32, shards: int = 1, seed: int = 0
) -> None:
    """Write the whole folder. Weights are normal with deviation 1/sqrt(fan in), norms near 1, biases near 0.

    So scaled, activations keep their size through the layers and logits differ enough for greedy comparisons.
    """
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(seed)
    shapes = tensor_shapes(decoder)
    tensors = {name: _random(shape, name, generator).to(dtype) for name, shape in shapes.items()}
    write_config(folder, config(decoder, dtype, eos=END_ID))
    write_weights(folder, tensors, shards=shards)
    for name in TOKENIZER_FILES:
        shutil.copyfile(FOLDER / name, folder / name)


def _random(shape: tuple[int, ...], name: str, generator: torch.Generator) -> torch.Tensor:
    noise: torch.Tensor = torch.randn(shape, generator=generator)
    if name.endswith("norm.weight"):
        return 1 + 0.1 * noise
    if name.endswith(".bias"):
        return 0.1 * noise
    return noise / math.sqrt(shape[-1])


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.random_model", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--architecture", choices=sorted(CLASSES), default="llama")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="float32")
    for flag, default in (
        ("vocab", 1536), ("hidden", 64), ("ffn", 160), ("layers", 2), ("heads", 4), ("kv-heads", 2), ("head-dim", 16),
        ("context", 2048), ("shards", 1), ("seed", 0),
    ):  # fmt: skip
        parser.add_argument(f"--{flag}", type=int, default=default, help="default: %(default)s")
    parser.add_argument("--untied", action="store_true", help="an own output matrix instead of the embedding's")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Entry point."""
    a = _arguments(argv)
    decoder = Decoder(
        model_type=a.architecture,
        vocab_size=a.vocab,
        hidden_size=a.hidden,
        intermediate_size=a.ffn,
        num_hidden_layers=a.layers,
        num_attention_heads=a.heads,
        num_key_value_heads=a.kv_heads,
        head_dim=a.head_dim,
        max_position_embeddings=a.context,
        tie_word_embeddings=not a.untied,
    )
    write(a.folder, decoder, dtype=DTYPES[a.dtype], shards=a.shards, seed=a.seed)


if __name__ == "__main__":
    main(sys.argv[1:])
