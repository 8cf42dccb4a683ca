"""Of the demo model's texts, how many change with what is computed beside them: what a seed promises in each type.

Each request is computed alone and then among all others, greedily and seeded, with equal settings. Nothing is timed, so
any machine will do; how a processor multiplies bf16 decides how much the batch shows.
"""

import random
from typing import Literal

from benchmarks.harness import Bar, Measured, Row, main
from tests.engine.driver import Driver, load

from paceline_workers import demo
from paceline_workers.engine.backend import Backend
from paceline_workers.messages import Sampling
from paceline_workers.server.tokenizer import Tokenizer

TYPES: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
TEMPERATURES = (0.0, 0.8)
REQUESTS, QUICK_REQUESTS = 256, 32
TOKENS = 48
WORDS = "the promise of a worker is the queue and gateway holds tokens a model is served batch prefill decode why scale"


def measure(quick: bool) -> Measured:
    """Texts that differ, of a hundred; in fp32 none may."""
    asked = _prompts(QUICK_REQUESTS if quick else REQUESTS)
    rows = []
    for dtype in TYPES:
        backend = load(demo.FOLDER, dtype=dtype, step_tokens=512)
        for temperature in TEMPERATURES:
            alone = [_texts(backend, {place: prompt}, temperature)[place] for place, prompt in asked.items()]
            among = _texts(backend, asked, temperature)
            changed = sum(text != among[place] for place, text in enumerate(alone))
            bar = Bar(0.0, at_least=False) if dtype == "fp32" else None
            rows.append(Row(f"{dtype}, temperature {temperature}", 100 * changed / len(asked), "% of texts", bar=bar))
    return rows, {"requests": len(asked), "tokens": TOKENS}


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
