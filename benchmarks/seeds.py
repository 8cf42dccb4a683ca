"""What a seed promises in each type, with `batch_invariant` and without: texts that the batch changes, and the price.

Texts are the demo model's: each request is computed alone and then among all others, greedily and seeded, with equal
settings. How a processor multiplies bf16 decides how much the batch shows. The price is that of steps of the random
model of `benchmarks.engine`, on the threads that a worker takes; both engines do the same work in turns.
"""

import os
import random
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from benchmarks.engine import model
from benchmarks.harness import Bar, Measured, Row, main, median_row, rotated
from tests.engine.driver import Driver, load

from paceline_workers import demo
from paceline_workers.engine.backends.base import Backend
from paceline_workers.messages import Sampling
from paceline_workers.server.text.tokenizer import Tokenizer

TYPES: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
TEMPERATURES = (0.0, 0.8)
REQUESTS, QUICK_REQUESTS = 256, 32
TOKENS = 48
WORK = {
    "decode, batch 1": (1, 128, 24),
    "decode, batch 8": (8, 128, 16),
    "decode, batch 32": (32, 128, 8),
    "prefill of 512": (1, 512, 1),
}
"""Requests, tokens of each prompt, and new ones."""
ROUNDS, QUICK_ROUNDS = 5, 2
WORDS = "the promise of a worker is the queue and gateway holds tokens a model is served batch prefill decode why scale"


def measure(quick: bool) -> Measured:
    """Texts that differ, of a hundred, and ratios of times."""
    asked = _prompts(QUICK_REQUESTS if quick else REQUESTS)
    changed = [row for dtype in TYPES for invariant in (False, True) for row in _changed(asked, dtype, invariant)]
    with tempfile.TemporaryDirectory(prefix="paceline-seeds-") as scratch:
        model.write(Path(scratch))
        price, seconds = _price(Path(scratch), QUICK_ROUNDS if quick else ROUNDS)
    load_average = {"load_average_at_end": os.getloadavg()}
    return changed + price, {"requests": len(asked), "tokens": TOKENS, "step_s": seconds} | load_average


def _changed(asked: dict[int, list[int]], dtype: str, invariant: bool) -> list[Row]:
    """In fp32 no text may change, and with the option none at all."""
    backend, rows = load(demo.FOLDER, dtype=dtype, step_tokens=512, batch_invariant=invariant), []
    for temperature in TEMPERATURES:
        alone = [_texts(backend, {place: prompt}, temperature)[place] for place, prompt in asked.items()]
        among = _texts(backend, asked, temperature)
        changed = sum(text != among[place] for place, text in enumerate(alone))
        bar = Bar(0.0, at_least=False) if dtype == "fp32" or invariant else None
        name = f"{dtype}, temperature {temperature}{', batch_invariant' if invariant else ''}"
        rows.append(Row(name, 100 * changed / len(asked), "% of texts", bar=bar))
    return rows


def _price(folder: Path, rounds: int) -> tuple[list[Row], dict[str, Any]]:
    rows, seconds = [], {}
    for dtype in TYPES:
        settings: dict[str, Any] = {"dtype": dtype, "page_tokens": 64, "kv_pages": 256, "max_seqs": 32}
        engines = {name: load(folder, batch_invariant=name == "on", **settings) for name in ("off", "on")}
        for work, sizes in WORK.items():
            taken: dict[str, list[float]] = {name: [] for name in engines}
            for turn in range(-1, rounds):
                for name in rotated(list(engines), turn):
                    step_s = _step_s(engines[name], turn, *sizes)
                    taken[name] += [step_s] if turn >= 0 else []
            ratios = [on / off for on, off in zip(taken["on"], taken["off"], strict=True)]
            rows.append(median_row(f"{dtype}, {work}: a step with batch_invariant over one without", ratios, "ratio"))
            seconds[f"{dtype}, {work}"] = taken
    return rows, seconds


def _step_s(backend: Backend, turn: int, batch: int, length: int, new: int) -> float:
    """Seconds of a step that gives each request a token; with one new token, of those that prefill."""
    driver, chance = Driver(backend, cache=False), random.Random(turn)
    for place in range(batch):
        driver.submit(f"r{place}", [chance.randrange(model.VOCAB) for _ in range(length)], new)
    while new > 1 and len({event.id for event in driver.events}) < batch:
        driver.step()
    begin, before = time.perf_counter(), len(driver.events)
    driver.drain()
    return (time.perf_counter() - begin) * batch / (len(driver.events) - before)


def _prompts(count: int) -> dict[int, list[int]]:
    tokenizer, chance, words = Tokenizer.load(demo.FOLDER), random.Random(3), WORDS.split()
    texts = (" ".join(chance.choices(words, k=chance.randrange(3, 40))) for _ in range(count))
    return {place: tokenizer.encode_now(text, special=True) for place, text in enumerate(texts)}


def _texts(backend: Backend, asked: dict[int, list[int]], temperature: float) -> dict[int, list[int]]:
    driver = Driver(backend, cache=False)
    for place, prompt in asked.items():
        driver.submit(f"r{place}", prompt, TOKENS, Sampling(temperature=temperature, top_p=0.95, seed=place))
    driver.drain()
    return {place: driver.text(f"r{place}") for place in asked}


if __name__ == "__main__":
    main("seeds", measure)
