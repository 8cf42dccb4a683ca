# ruff: noqa: INP001 - a script, not part of a package
"""Writes the synthetic traces of the stories beside this file: a rise and fall, and chats with rare long prompts.

The same seed writes the same bytes: `python examples/simulate/make_traces.py`.
"""

import csv
import gzip
import io
from collections.abc import Iterable
from pathlib import Path
from random import Random

from paceline_simulator.traces import TraceRequest
from paceline_simulator.workloads import Lengths, combine, mixed, poisson, varying

HERE = Path(__file__).parent
HALF_S = 1800.0
SPAN_S = 1500.0


def chat(random: Random) -> TraceRequest:
    """A prompt of about 2,000 tokens and an answer of about 100."""
    return TraceRequest(0.0, round(random.lognormvariate(7.4, 0.7)) + 20, round(random.expovariate(1 / 100)) + 1)


def summary(random: Random) -> TraceRequest:
    """A prompt of about 3,500 tokens and an answer of about 100."""
    return TraceRequest(0.0, round(random.lognormvariate(8.0, 0.6)) + 20, round(random.expovariate(1 / 100)) + 1)


def wave(at: float) -> float:
    """Requests a second: up for half an hour, then down."""
    return 0.3 + 6.2 * (1 - abs(at / HALF_S - 1))


def document(random: Random) -> TraceRequest:
    """16,000 to 30,000 tokens of prompt, and a short answer."""
    return TraceRequest(0.0, random.randrange(16_000, 30_000), 60)


def traces() -> dict[str, list[TraceRequest]]:
    """By file."""
    rising, rare = Random(1), Random(2)  # noqa: S311 - repeatable draws, no secrets
    lengths: Lengths = mixed(chat, document, 0.04)
    return {
        "wave.csv.gz": combine(varying(wave, 6.5, rising), summary, rising, 2 * HALF_S),
        "long_prompts.csv.gz": combine(poisson(1.5, rare), lengths, rare, SPAN_S),
    }


def table(requests: Iterable[TraceRequest]) -> str:
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(("t_s", "prompt_tokens", "output_tokens"))
    rows.writerows((f"{request.at:.3f}", request.prompt_tokens, request.output_tokens) for request in requests)
    return text.getvalue()


if __name__ == "__main__":
    for name, requests in traces().items():
        (HERE / name).write_bytes(gzip.compress(table(requests).encode(), mtime=0))
