"""Published request logs as prompts of token ids, at any rate. The folder is named by PACELINE_TRACES.

Mooncake's log names the prefix blocks of 512 tokens, so equal ids become equal tokens; Azure's says nothing of content,
so its prompts share nothing. Arrivals that a log rounded to the same instant are spread over the time to the next one.
"""

import csv
import gzip
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby, islice, pairwise
from pathlib import Path

VARIABLE = "PACELINE_TRACES"
BLOCK = 512


@dataclass(frozen=True, slots=True)
class Call:
    """One logged request. `blocks` name the content of its prompt, BLOCK tokens each."""

    at: float
    prompt: int
    output: int
    blocks: tuple[int, ...]

    def tokens(self) -> list[int]:
        """The prompt: every token of a block is its name."""
        return [block for block in self.blocks for _ in range(BLOCK)][: self.prompt]


def azure(count: int) -> list[Call]:
    """The first `count` calls of the conversation log of 2023."""
    with gzip.open(_folder() / "azure2023_conv.csv.gz", "rt") as file:
        rows = [
            (float(row["t_s"]), int(row["prompt_tokens"]), int(row["output_tokens"])) for row in csv.DictReader(file)
        ]
    fresh = iter(range(1 << 30))
    return [
        Call(at, prompt, output, tuple(next(fresh) for _ in range(-(-prompt // BLOCK))))
        for at, prompt, output in _spread(rows[:count])
    ]


def mooncake(count: int, kind: str = "conversation", after: int = 0) -> list[Call]:
    """The first `count` calls `after` so many of the conversation log of FAST'25, or of its authors' synthetic one."""
    with gzip.open(_folder() / f"mooncake_{kind}.jsonl.gz", "rt") as file:
        lines = [json.loads(line) for line in islice(file, after, after + count)]
    first = lines[0]["t_s"] if after else 0.0
    times = _spread([(line["t_s"] - first, 0, 0) for line in lines])
    return [
        Call(at, line["prompt_tokens"], line["output_tokens"], tuple(line["hash_ids"]))
        for (at, _, _), line in zip(times, lines, strict=True)
    ]


def _folder() -> Path:
    folder = os.environ.get(VARIABLE)
    if not folder:
        raise SystemExit(f"set {VARIABLE} to the folder that holds the traces")
    return Path(folder)


def _spread(rows: Iterable[tuple[float, int, int]]) -> Iterator[tuple[float, int, int]]:
    groups = [(at, list(group)) for at, group in groupby(rows, key=lambda row: row[0])]
    ends = [after for (_, _), (after, _) in pairwise(groups)] + [groups[-1][0]]
    for (at, group), end in zip(groups, ends, strict=True):
        for place, (_, prompt, output) in enumerate(group):
            yield at + (end - at) * place / len(group), prompt, output
