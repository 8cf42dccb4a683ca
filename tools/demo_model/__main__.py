"""`python -m tools.demo_model [folder]`: learn the tokenizer and the weights, write the folder and its DIGEST."""

import argparse
import hashlib
import logging
import sys
from pathlib import Path

import torch

from tools.demo_model import corpus as corpora
from tools.demo_model import tokenizer as tokenizers
from tools.demo_model.train import Recipe, train
from tools.model_folder import Decoder, config, write_config, write_weights

FOLDER = Path(__file__).parents[2] / "workers" / "paceline_workers" / "demo" / "model"

DECODER = Decoder(
    model_type="llama",
    vocab_size=1536,
    hidden_size=128,
    intermediate_size=384,
    num_hidden_layers=4,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=32,
    max_position_embeddings=2048,
    tie_word_embeddings=True,
)


def make(folder: Path, recipe: Recipe) -> None:
    """Everything from corpus to digest; `folder` is made if it is not there."""
    corpus = corpora.Corpus.committed()
    tokenizer = tokenizers.train(corpus, vocab=DECODER.vocab_size, seed=recipe.seed)
    model = train(corpus, tokenizer, DECODER, recipe)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizers.write(tokenizer, folder, context=DECODER.max_position_embeddings)
    write_config(folder, config(DECODER, torch.float32, eos=tokenizers.END_ID))
    tensors = {name: value.contiguous() for name, value in model.state_dict().items() if name != "lm_head.weight"}
    write_weights(folder, tensors)
    write_digest(folder)


def write_digest(folder: Path) -> None:
    """DIGEST in the format of `sha256sum`, so that `sha256sum -c DIGEST` checks the folder."""
    lines = [f"{digest(folder / name)}  {name}\n" for name in ("model.safetensors", "tokenizer.json")]
    (folder / "DIGEST").write_text("".join(lines), encoding="utf-8")


def digest(path: Path) -> str:
    """SHA-256 of a file in hex."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.demo_model", description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="where to write (default: the package's)")
    parser.add_argument("--steps", type=int, default=Recipe().steps, help="training steps (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads; 1 is reproducible (default: %(default)s)")
    return parser.parse_args(argv)


def main(argv: list[str]) -> None:
    """Entry point."""
    arguments = _arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    torch.set_num_threads(arguments.threads)
    make(arguments.folder, Recipe(steps=arguments.steps))


if __name__ == "__main__":
    main(sys.argv[1:])
