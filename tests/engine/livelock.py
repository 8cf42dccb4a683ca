"""Random lives of a scheduler, each with random limits and requests: all requests end, within a bound on their steps.

`python -m tests.engine.livelock` runs 100,000 of them on all cores (`make nightly`); a seed that fails is named and
fails again alone: `--first SEED --runs 1`. What is checked at every step is what `Shadow` checks: reads find what was
written, nobody writes where another could read, free + cached + held = total.
"""

import argparse
import os
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from random import Random
from time import perf_counter

from tests.engine.reference_scheduler import Shadow, expected, request, scheduler

from paceline_core.registry.enums import RequestClass
from paceline_core.wire import StepTime
from paceline_workers.engine.kv_cache.attention_window import ALL, AttentionWindow
from paceline_workers.engine.scheduling import Scheduler

MODEL = StepTime(base=0.01, prefill=0.001, sequence=0.0001, kv=0.0001, context=0.0001, observations=99)
STEPS_PER_TOKEN = 3
"""Were no token ever computed twice, a life would take at most one step a token of its prompts and outputs."""
SHARE = 500


@dataclass(frozen=True)
class Life:
    """What one run did: the most steps that a token of work took, and how often a request was preempted."""

    seed: int
    steps_per_token: float
    preemptions: int
    most_preempted: int


def live(seed: int) -> Life:
    """Submit at random, step to the end, compare every text."""
    chance = Random(seed)
    run = Shadow(_scheduler(chance), ahead=chance.random() < 0.5)
    run.core.memory.offload.prefill_seconds = chance.choice([0.0, 1.0])
    entries = []
    for number in range(chance.randint(2, 16)):
        prompt = [chance.randint(0, 1) for _ in range(chance.randint(1, 30))]
        cls = chance.choice([*RequestClass])
        entry = request(f"r{number}", prompt, chance.randint(1, 30), arrival=run.now, cls=cls)
        if not run.core.submit(entry):
            entries.append(entry)
        for _ in range(chance.randint(0, 3)):
            run.step()
    work = sum(entry.prompt_len + entry.max_tokens for entry in entries)
    run.drain(limit=STEPS_PER_TOKEN * work + 100)
    assert run.ends() == dict.fromkeys((entry.id for entry in entries), "length")
    for entry in entries:
        length = min(entry.max_tokens, run.core.limits.max_model_len - entry.prompt_len)
        assert run.text(entry.id) == expected(entry.tokens[: entry.prompt_len], length)
    most = max((entry.preemptions for entry in entries), default=0)
    return Life(seed, run.core.counters.steps / max(work, 1), run.core.counters.preemptions, most)


def _scheduler(chance: Random) -> Scheduler:
    return scheduler(
        chance.randint(3, 24),
        slots=chance.randint(1, 8),
        budget=chance.randint(1, 20),
        prefix_cache=chance.random() < 0.5,
        host=chance.choice([0, 0, 4]),
        hopeful=chance.random() < 0.7,
        model=chance.choice([None, MODEL]),
        batching=chance.choice(["continuous", "continuous", "continuous", "dynamic", "static"]),
        tpot=chance.choice([{}, {RequestClass.INTERACTIVE: 0.02}]),
        attention_window=chance.choice([ALL, ALL, AttentionWindow(4), AttentionWindow(6, 1), AttentionWindow(9, 5)]),
        reserved=chance.choice([{}, {RequestClass.INTERACTIVE: 0.3, RequestClass.BATCH: 0.3}]),
    )


def lives(seeds: range) -> list[Life]:
    """One after the other; what goes wrong is told with its seed."""
    found = []
    for seed in seeds:
        try:
            found.append(live(seed))
        except Exception as error:
            raise RuntimeError(f"the life of seed {seed} went wrong: {error}") from error
    return found


def summary(found: Iterable[Life], seconds: float) -> str:
    """One line for a log."""
    all_of = list(found)
    slowest = max(all_of, key=lambda life: life.steps_per_token)
    return (
        f"{len(all_of)} lives in {seconds:.0f} s, all ended: {sum(life.preemptions for life in all_of)} preemptions, "
        f"at most {max(life.most_preempted for life in all_of)} of one request; "
        f"at most {slowest.steps_per_token:.2f} steps a token (seed {slowest.seed})"
    )


def main() -> None:
    """Run what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100_000)
    parser.add_argument("--first", type=int, default=0)
    asked = parser.parse_args()
    last = asked.first + asked.runs
    shares = [range(first, min(first + SHARE, last)) for first in range(asked.first, last, SHARE)]
    began = perf_counter()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        found = [life for share in pool.map(lives, shares) for life in share]
    sys.stdout.write(f"{summary(found, perf_counter() - began)}\n")


if __name__ == "__main__":
    main()
