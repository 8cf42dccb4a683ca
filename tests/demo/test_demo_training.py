"""The training script itself, over a few steps: seeded, whole, and learning from answers alone."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tools.demo_model import __main__ as script
from tools.demo_model import tokenizer as tokenizers
from tools.demo_model.corpus import Corpus
from tools.demo_model.train import IGNORED, Recipe, batch

pytestmark = pytest.mark.models

SHORT = Recipe(steps=3, rows=2, length=64)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    torch.set_num_threads(1)
    made = [tmp_path_factory.mktemp(name) / "model" for name in ("first", "second")]
    for folder in made:
        script.make(folder, SHORT)
    return made


def test_two_runs_with_one_seed_write_the_same_bytes(folders: list[Path]) -> None:
    first, second = folders
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_the_folder_of_a_run_loads_without_a_missing_or_unexpected_tensor(folders: list[Path]) -> None:
    from transformers import AutoModelForCausalLM

    auto: Any = AutoModelForCausalLM
    model, info = auto.from_pretrained(folders[0], output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.dtype == torch.float32


def test_the_committed_folder_has_the_files_and_the_config_of_a_run(folders: list[Path]) -> None:
    assert {path.name for path in script.FOLDER.iterdir()} == {path.name for path in folders[0].iterdir()}
    for name in ("config.json", "generation_config.json", "tokenizer_config.json", "special_tokens_map.json"):
        assert (script.FOLDER / name).read_bytes() == (folders[0] / name).read_bytes(), name


def test_the_committed_tokenizer_is_the_one_that_the_corpus_gives(folders: list[Path]) -> None:
    committed, fresh = (Tokenizer.from_file(str(path / "tokenizer.json")) for path in (script.FOLDER, folders[0]))
    assert committed.get_vocab() == fresh.get_vocab()


def test_only_answers_and_their_end_carry_loss() -> None:
    corpus = Corpus.committed()
    tokenizer = tokenizers.train(corpus, vocab=script.DECODER.vocab_size, seed=7)
    tokens, labels = batch(corpus, tokenizer, Recipe(rows=8, length=256), Random(1))
    assert tokens.shape == labels.shape == (8, 256)
    learned = labels != IGNORED
    assert torch.equal(tokens[learned], labels[learned])
    users = [tokenizer.token_to_id(mark) for mark in ("<|user|>", "<|system|>", "<|assistant|>")]
    assert not torch.isin(labels, torch.tensor(users)).any()
    assert 0.2 < learned.float().mean() < 0.9
