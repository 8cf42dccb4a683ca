"""Rounds in which all engines do the same work one after another, each round beginning with another one.

Neighbours on the machine change single figures by half, so engines are compared within a round, and what counts is the
median of the rounds' ratios.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.engine.lines import Run
from benchmarks.engine.model import VOCAB
from benchmarks.engine.peers import Engine
from benchmarks.harness import Bar, Row, rotated


@dataclass(frozen=True, slots=True)
class Work:
    """So many prompts of so many tokens, and the new tokens of each; 1: prefill is what is measured."""

    name: str
    batch: int
    prompt: int
    new: int

    def prompts(self, seed: int) -> list[list[int]]:
        """Random ones, other ones for each seed, so that no cache helps."""
        chance = random.Random(f"{self.name} {seed}")
        return [[chance.randrange(VOCAB) for _ in range(self.prompt)] for _ in range(self.batch)]

    def speed(self, run: Run) -> float:
        """Tokens a second: of the prompts, or of all new tokens but the first ones."""
        if self.new == 1:
            return self.batch * self.prompt / run.first_s
        return self.batch * (self.new - 1) / run.rest_s


def rounds(work: Work, engines: Mapping[str, Engine], count: int) -> dict[str, list[float]]:
    """Speeds of each engine, round by round, after one that does not count."""
    speeds: dict[str, list[float]] = {name: [] for name in engines}
    for turn in range(-1, count):
        prompts = work.prompts(turn)
        for name in rotated(list(engines), turn):
            speed = work.speed(engines[name].run(prompts, work.new))
            if turn >= 0:
                speeds[name].append(speed)
    return speeds


def compared(work: Work, speeds: Mapping[str, Sequence[float]], bars: Mapping[str, float]) -> list[Row]:
    """A row of ours against each other engine, and one of their ratio, with its bar if it has one.

    `speeds`: ours first.
    """
    (ours, mine), *others = speeds.items()
    rows = []
    for name, theirs in others:
        spread = max(mine) - min(mine)
        rows.append(
            Row(f"{work.name}, {ours} and {name}", median(mine), "tokens/s", peer=median(theirs), spread=spread)
        )
        ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
        bar = Bar(bars[name], at_least=True) if name in bars else None
        spread = max(ratios) - min(ratios)
        rows.append(Row(f"{work.name}, {ours} over {name}", median(ratios), "ratio", spread=spread, bar=bar))
    return rows


def agreeing(texts: Mapping[str, Sequence[Sequence[int]]]) -> dict[str, int]:
    """How many texts of each engine are those of the last one."""
    *_, reference = texts.values()
    return {name: sum(map(list.__eq__, map(list, mine), map(list, reference))) for name, mine in texts.items()}
