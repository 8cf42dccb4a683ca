"""Train a small Llama on the corpus, on the CPU, from a seed.

Each row of a batch is packed with conversations until it is full, which makes every row one long chat: the model learns
to answer the last question whatever came before. Only answers carry loss, and one row in ten is a plain sentence for
the completions API. One thread, one seed and one machine type give the same weights bit by bit; another CPU may round
differently, and for that reason the digest is of the committed file and not of a new run.
"""

import logging
import math
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from tokenizers import Tokenizer

from tools.demo_model.corpus import Corpus
from tools.demo_model.tokenizer import END, END_ID
from tools.model_folder import Decoder, config

IGNORED = -100
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recipe:
    """All numbers of a run. `rows` x `length` tokens are one batch; rates are AdamW's peak and decay."""

    seed: int = 7
    steps: int = 1600
    rows: int = 10
    length: int = 320
    learning_rate: float = 4e-3
    weight_decay: float = 0.05
    warmup: int = 60


def train(corpus: Corpus, tokenizer: Tokenizer, decoder: Decoder, recipe: Recipe) -> Any:
    """The trained model, in float32; it has no dropout, so training and evaluation mode are one."""
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415 - 4 s that nothing else here needs

    torch.manual_seed(recipe.seed)
    random = Random(recipe.seed)  # noqa: S311 - draws sentences, not secrets
    model = LlamaForCausalLM(LlamaConfig(**config(decoder, torch.float32, eos=END_ID)))
    optimizer = torch.optim.AdamW(_groups(model, recipe.weight_decay), lr=recipe.learning_rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))
    for step in range(recipe.steps):
        tokens, labels = batch(corpus, tokenizer, recipe, random)
        loss = model(input_ids=tokens, labels=labels, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        schedule.step()
        if step % 50 == 0 or step + 1 == recipe.steps:
            _log.info("step %d of %d, loss %.4f", step + 1, recipe.steps, loss.item())
    return model


def _groups(model: torch.nn.Module, decay: float) -> list[dict[str, object]]:
    parameters = list(model.parameters())
    return [
        {"params": [p for p in parameters if p.dim() > 1], "weight_decay": decay},
        {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
    ]


def _rate(step: int, recipe: Recipe) -> float:
    """Linear warm-up, then a cosine to 2 % of the peak."""
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    progress = (step - recipe.warmup) / max(recipe.steps - recipe.warmup, 1)
    return 0.02 + 0.49 * (1 + math.cos(math.pi * progress))


def batch(corpus: Corpus, tokenizer: Tokenizer, recipe: Recipe, random: Random) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens and labels, both [rows, length]; labels are IGNORED where nothing is to be learned."""
    rows = [_row(corpus, tokenizer, recipe.length, random) for _ in range(recipe.rows)]
    return torch.tensor([row[0] for row in rows]), torch.tensor([row[1] for row in rows])


def _row(corpus: Corpus, tokenizer: Tokenizer, length: int, random: Random) -> tuple[list[int], list[int]]:
    tokens: list[int] = []
    labels: list[int] = []
    while len(tokens) < length:
        for text, learned in _pieces(corpus, random):
            ids = tokenizer.encode(text).ids
            tokens += ids
            labels += ids if learned else [IGNORED] * len(ids)
    return tokens[:length], labels[:length]


def _pieces(corpus: Corpus, random: Random) -> list[tuple[str, bool]]:
    """Text and whether it carries loss; marks are those of the chat template."""
    if random.random() < 0.1:
        return [(random.choice(corpus.entries).answer + END, True)]
    pieces = []
    for turn in corpus.conversation(random):
        pieces += [(f"<|{turn.role}|>", False), (turn.content + END, turn.role == "assistant")]
    return pieces
