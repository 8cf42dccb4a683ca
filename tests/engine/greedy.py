"""Greedy texts against those of `transformers`, position by position, and a count of those that rounding may decide.

Products of other shapes round differently. How far float32 in `transformers` is from float64 is measured for each
model; our logits may be off by twice as much. So a position is left out only where the two best logits lie closer
than both errors together could swap them, and at most MOST_EXCLUDED of all positions may be.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.engine.driver import Driver
from tests.engine.reference import Reference

OUR_ERROR = 2.0
MOST_EXCLUDED = 0.001


@dataclass
class Tally:
    """Positions of all texts that were compared."""

    compared: int = 0
    excluded: int = 0

    @property
    def summary(self) -> str:
        return f"{self.compared} greedy tokens compared with transformers, {self.excluded} left out as too close"

    def check(self, expected: Reference, prompt: Sequence[int], text: Sequence[int]) -> None:
        """`text` is what greedy decoding gives after `prompt`, wherever rounding cannot decide."""
        rows = expected.logits([*prompt, *text])[len(prompt) - 1 : -1]
        best = rows.topk(2)
        for token, values, ids in zip(text, best.values.tolist(), best.indices.tolist(), strict=True):
            self.compared += 1
            if values[0] - values[1] > 2 * (1 + OUR_ERROR) * expected.error:
                assert token == ids[0], (prompt, text)
            else:
                self.excluded += 1

    def check_all(self, expected: Reference, run: Driver, asked: Mapping[str, Sequence[int]], count: int) -> None:
        """Every text of a run, each of `count` tokens."""
        for name, prompt in asked.items():
            text = run.text(name)
            assert len(text) == count, name
            self.check(expected, prompt, text)


def serve(run: Driver, asked: Mapping[str, Sequence[int]], count: int) -> None:
    """Ask for all at once and wait for all."""
    for name, prompt in asked.items():
        run.submit(name, prompt, count)
    run.drain()
