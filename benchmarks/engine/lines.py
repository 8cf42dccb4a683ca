"""How the benchmark talks to an engine in a process of its own: one JSON object a line, a job in, a run out.

Standard library alone, since peers run it in their own virtual environments. Clocks are read by the engine's process,
so that neither pipes nor JSON count.
"""

import json
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Run:
    """What a batch of prompts took: seconds until all had their first token, then until the last; and the tokens.

    `rest_cpu_s`: processor seconds of the rest, in which neighbours count less.
    """

    first_s: float
    rest_s: float
    rest_cpu_s: float
    texts: list[list[int]]


@dataclass(frozen=True, slots=True)
class Stamp:
    """A moment by both clocks."""

    wall: float
    cpu: float

    @classmethod
    def now(cls) -> "Stamp":
        """The process's own."""
        return cls(time.perf_counter(), time.process_time())


def run(begin: Stamp, first: Stamp, last: Stamp, texts: list[list[int]]) -> Run:
    """From the moments of submission, of the last first token, and of the last token."""
    return Run(first.wall - begin.wall, last.wall - first.wall, last.cpu - first.cpu, texts)


Generate = Callable[..., Run]
"""`prompts`, `new`: greedy decoding of all prompts as one batch, to so many new tokens each; ours takes more."""


def serve(load: Callable[[str, int], Generate]) -> None:
    """`argv`: model folder, threads. Says when it is loaded, then answers jobs until its input ends."""
    answers, sys.stdout = sys.stdout, sys.stderr
    generate = load(sys.argv[1], int(sys.argv[2]))
    print(json.dumps({"ready": True}), file=answers, flush=True)
    for line in sys.stdin:
        print(json.dumps(asdict(generate(**json.loads(line)))), file=answers, flush=True)
