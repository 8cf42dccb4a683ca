"""How likely a prompt's tokens were, computed on the device from the rows before them.

Logits are held for SCORED rows at a time, in float32; what comes to the host is a few numbers a row. Known hole: of
candidates that are equally likely at the border of the last place, any one may be reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from paceline_workers.engine.backends.gpu.device import Device
from paceline_workers.messages import PromptLogprob

SCORED = 64


@dataclass(frozen=True, slots=True)
class ScoredPrompt:
    """A chunk whose rows from `row` on say how likely the tokens `following` them were, with so many candidates."""

    row: int
    following: list[int]
    top: int


@dataclass(frozen=True, slots=True)
class ScoreRows:
    """Of all such chunks of a step, on the device: their rows, the tokens that follow, the most candidates of any."""

    rows: Tensor
    following: Tensor
    top: int

    @classmethod
    def of(cls, chunks: Sequence[ScoredPrompt], device: Device) -> "ScoreRows":
        """Sent beside the host."""
        rows = [chunk.row + place for chunk in chunks for place in range(len(chunk.following))]
        following = [token for chunk in chunks for token in chunk.following]
        host = device.pinned((2, len(rows)), torch.int64)
        host.copy_(torch.tensor([rows, following]))
        sent = host.to(device.where, non_blocking=True)
        return cls(sent[0], sent[1], max(chunk.top for chunk in chunks))


@dataclass(frozen=True, slots=True)
class PromptScorer:
    """By row: log-probability and rank of the token that follows, ids and log-probabilities of the likeliest ones."""

    own: Tensor
    rank: Tensor
    ids: Tensor
    values: Tensor

    @classmethod
    def of(cls, rows: ScoreRows, logits: Callable[[slice], Tensor]) -> "PromptScorer":
        """`logits` gives those of some of the rows."""
        parts = [
            _scores(logits(slice(first, first + SCORED)), rows.following[first : first + SCORED], rows.top)
            for first in range(0, len(rows.rows), SCORED)
        ]
        own, rank, ids, values = (torch.cat(list(each)) for each in zip(*parts, strict=True))
        return cls(own, rank, ids, values)

    def copied(self, device: Device) -> "PromptScorer":
        """On the host, once the compute stream has come here."""
        return PromptScorer(
            *(
                device.pinned(part.shape, part.dtype).copy_(part, non_blocking=True)
                for part in (self.own, self.rank, self.ids, self.values)
            )
        )

    def read(self, chunks: Sequence[ScoredPrompt]) -> list[list[PromptLogprob]]:
        """For each chunk what it asked for, best first and of equals the lowest id first."""
        entries = zip(self.own.tolist(), self.rank.tolist(), self.ids.tolist(), self.values.tolist(), strict=True)
        return [[_entry(*next(entries), chunk.top) for _ in chunk.following] for chunk in chunks]


def _scores(logits: Tensor, following: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits = logits.float()
    total = logits.logsumexp(-1, keepdim=True)
    own = logits.gather(1, following[:, None])
    rank = (logits > own).sum(-1) + 1
    values, ids = logits.topk(min(top, logits.shape[1]))
    return (own - total)[:, 0], rank, ids, values - total


def _entry(own: float, rank: int, ids: list[int], values: list[float], top: int) -> PromptLogprob:
    best = sorted(zip(ids, values, strict=True), key=lambda one: (-one[1], one[0]))
    return own, rank, best[:top]
