"""Our engine against llama.cpp and transformers on one random model, and served over HTTP against itself offline.

`python -m benchmarks.engine` takes some minutes; the first run makes the environments of llama.cpp and aiperf before.
Float32, two threads. Before anything is timed, all engines must have given the same greedy tokens.
"""

import os
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.engine import model, outside, served
from benchmarks.engine.peers import LLAMA, OURS, Engine, engine
from benchmarks.engine.rounds import Work, agreeing, compared, rounds
from benchmarks.harness import Bar, Measured, Row, main

THREADS = 2
CHECK = Work("check", 8, 128, 64)
CHECKS = 2
ALIKE = CHECK.batch * CHECKS
DECODE = Work("decode, batch 8", 8, 128, 64)
OTHERS = (Work("decode, batch 1", 1, 128, 64), Work("prefill of 512", 1, 512, 1))
BARS = {"llama.cpp": 0.9, "transformers": 1.8}


def measure(quick: bool) -> Measured:
    """All rows."""
    with tempfile.TemporaryDirectory(prefix="paceline-engine-") as scratch:
        folder = Path(scratch)
        model.write(folder)
        peers, more = _peers(folder, quick=quick)
        over_http, most = served.measure(folder, quick=quick)
        counts, told = outside.measure(folder)
    load = {"load_average_at_end": os.getloadavg()}
    return peers + over_http + counts, {"llama.cpp": LLAMA.versions(), "served": most, "aiperf": told} | more | load


def _peers(folder: Path, *, quick: bool) -> Measured:
    with ExitStack() as stack:
        engines = {
            "paceline": stack.enter_context(engine(OURS, "run_paceline", folder, THREADS)),
            "llama.cpp": stack.enter_context(engine(LLAMA.python(), "run_llama", folder, THREADS)),
            "transformers": stack.enter_context(engine(OURS, "run_transformers", folder, THREADS)),
        }
        rows, speeds = _alike(engines), {}
        for work in (DECODE, *OTHERS):
            speeds[work.name] = rounds(work, engines, 2 if quick else 7)
            rows += compared(work, speeds[work.name], BARS if work is DECODE else {})
    return rows, {"tokens_per_s": speeds}


def _alike(engines: dict[str, Engine]) -> list[Row]:
    prompts: list[Any] = [prompt for seed in range(CHECKS) for prompt in CHECK.prompts(seed)]
    halves = [prompts[: CHECK.batch], prompts[CHECK.batch :]]
    texts = {
        name: [text for half in halves for text in one.run(half, CHECK.new).texts] for name, one in engines.items()
    }
    names = {name: same for name, same in agreeing(texts).items() if name != "transformers"}
    bar = Bar(ALIKE, at_least=True)
    return [
        Row(f"texts as transformers gives them, {name}", same, f"of {ALIKE}", bar=bar) for name, same in names.items()
    ]


if __name__ == "__main__":
    main("engine", measure)
