"""Scores as transformers computes them. Only the test that needs it imports this: it costs seconds."""

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import cosine_similarity
from transformers import AutoModel, AutoTokenizer

from paceline_workers import demo


class Judge:
    """The same model in transformers."""

    def __init__(self) -> None:
        self._model: Any = AutoModel.from_pretrained(demo.FOLDER, dtype=torch.float32)
        self._tokenizer: Any = AutoTokenizer.from_pretrained(demo.FOLDER)

    def tokens(self, *texts: str) -> int:
        """That the tokenizer makes of them."""
        return sum(len(self._tokenizer(text).input_ids) for text in texts)

    def scores(self, queries: Sequence[str], texts: Sequence[str]) -> list[float]:
        """Of each pair; one query is everybody's."""
        pairs = zip(list(queries) * (len(texts) // len(queries)), texts, strict=True)
        return [float(cosine_similarity(self._vector(one), self._vector(two), dim=0)) for one, two in pairs]

    @torch.inference_mode()
    def _vector(self, text: str) -> torch.Tensor:
        states: torch.Tensor = self._model(**self._tokenizer(text, return_tensors="pt")).last_hidden_state
        return states[0, -1]
