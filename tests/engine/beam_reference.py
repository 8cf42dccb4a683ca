"""Beam search by `transformers`."""

from collections.abc import Sequence
from typing import Any

import torch
from tests.engine.reference import VOCAB, Reference

from paceline_workers.engine.scheduling.search import Search


def theirs(model: Reference, prompt: Sequence[int], search: Search) -> list[tuple[list[int], float]]:
    """All finished beams with their scores, best first. A width of at least 2."""
    out: Any = model.model.generate(
        torch.tensor([list(prompt)]),
        num_beams=search.width,
        num_return_sequences=search.width,
        max_new_tokens=search.max_tokens,
        min_new_tokens=search.min_tokens,
        length_penalty=search.length_penalty,
        early_stopping=search.early_stopping,
        eos_token_id=sorted(search.stop_ids) or [VOCAB],
        pad_token_id=VOCAB,
        do_sample=False,
        return_dict_in_generate=True,
        output_scores=True,
    )
    texts = [[token for token in row if token != VOCAB] for row in out.sequences[:, len(prompt) :].tolist()]
    return list(zip(texts, out.sequences_scores.tolist(), strict=True))
