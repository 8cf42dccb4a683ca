"""How long `what-if` takes for a day, and what it plays in its time limit, on a made week of one service.

Work goes up and down once a day around 0.8 replica-s/s, with a deviation of 8 % from bin to bin. Prompts and answers
are log-normal with medians of 735 and 181 tokens, and 30 % of the prompt tokens are cached. A replica is Llama 3.1 8B
on an H100 by the planner's roofline. The table is printed as the command prints it. How much fits into the time limit
depends on what else the machine does; the CPU time of one variant does so less.
"""

import time
from collections.abc import Sequence
from math import pi, sin
from random import Random

from benchmarks.harness import Bar, Measured, Row
from rich.console import Console

from paceline_autoscaler.model.lengths import LengthSummary
from paceline_autoscaler.model.work_history import BIN_S, MAX_BINS, WorkHistory, code_of
from paceline_autoscaler.output.scale_writer import StoredState, stored_texts
from paceline_autoscaler.state import Knowledge, LearnedState, PoolSpeed, StartSample, State
from paceline_autoscaler.types import StartKind
from paceline_cli.what_if.command import what_if_of
from paceline_cli.what_if.question import Question
from paceline_cli.what_if.runs import answer
from paceline_cli.what_if.table import document, render
from paceline_core.clock import SystemClock
from paceline_core.objects import InferenceService, read, resolve
from paceline_core.registry.enums import RequestClass
from paceline_core.wire import LENGTH_BUCKETS, length_bucket
from paceline_simulator.cluster import EPOCH
from paceline_simulator.service_engine import simulated_pools

LEVEL, DOLLARS = 0.8, 4.0
LIMIT_S, QUICK_LIMIT_S = 60.0, 20.0
MANIFEST = {
    "apiVersion": "paceline.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"name": "chat", "namespace": "default"},
    "spec": {
        "model": {"source": "builtin://demo"},
        "engine": {
            "maxModelLen": 8192,
            "emulate": {"accelerator": "h100", "model": "llama-3.1-8b", "coldStart": "60s"},
        },
        "classes": {"interactive": {"slo": {"ttft": {"p95": "500ms"}, "tpot": {"p95": "50ms"}}}},
        "pools": [{"name": "main", "accelerator": "cpu", "replicas": {"min": 1, "max": 20}}],
    },
}


def measure(quick: bool) -> Measured:
    since, limit_s = ("1h", QUICK_LIMIT_S) if quick else ("24h", LIMIT_S)
    question = Question.of("ttft:p95=300ms", "1.5x", since, f"{limit_s:.0f}s", None)
    clock, stored = SystemClock(), stored_texts(week())
    begun = clock.monotonic()
    asked = what_if_of(question, MANIFEST, {"now": EPOCH.timestamp(), "stored": stored})
    asked.check()
    found = answer(asked, limit_s)
    took_s = clock.monotonic() - begun
    Console(width=120).print(render(question, asked, found, DOLLARS))
    begun = time.process_time()
    asked.fluid(asked.would_be)
    cpu_s = time.process_time() - begun
    played = found.fluid.end_s - found.fluid.start_s
    exact_s = 0.0 if isinstance(found.exact, str) else found.exact.end_s - found.exact.start_s
    rows = [
        Row(f"what-if, the last {since}", took_s, "s", bar=None if quick else Bar(LIMIT_S)),
        Row("fluid model of both variants", found.fluid.took_s, "s"),
        Row("fluid model of one variant, whole", cpu_s, "s CPU"),
        Row("played by the fluid model", played / 3600, "h"),
        Row("played by the exact simulator", exact_s / 60, "min"),
    ]
    return rows, document(question, asked, found, DOLLARS)


def week() -> StoredState:
    """What an autoscaler would have stored of the service at EPOCH."""
    service = resolve(read(InferenceService, MANIFEST))
    engine = simulated_pools(service).pools[0].engine
    speed = PoolSpeed("main", engine.model, engine.limits.max_seqs, engine.pages * engine.limits.page_tokens)
    random, day = Random(1), MAX_BINS / 7
    rates = [LEVEL * (1 + 0.6 * sin(2 * pi * place / day)) for place in range(MAX_BINS)]
    codes = bytes(code_of(rate * random.lognormvariate(0, 0.08)) for rate in rates)
    history = WorkHistory(EPOCH.timestamp() - MAX_BINS * BIN_S, codes, variance=0.01 * LEVEL, mean=LEVEL)
    starts = tuple(StartSample("main", StartKind.COLD, seconds) for seconds in (60.0, 66.0))
    state = State(learned=LearnedState(starts=starts, speeds=(speed,)))
    return StoredState(state, Knowledge((("both", history),)), (_lengths(random),))


def _lengths(random: Random) -> LengthSummary:
    prompts = [min(max(round(random.lognormvariate(6.6, 0.9)), 1), 6000) for _ in range(5000)]
    outputs = [min(max(round(random.lognormvariate(5.2, 0.8)), 1), 1500) for _ in range(5000)]
    return LengthSummary(
        RequestClass.INTERACTIVE,
        len(prompts),
        sum(prompts),
        0.3 * sum(prompts),
        sum(outputs),
        _counted(prompts),
        _counted(outputs),
    )


def _counted(lengths: Sequence[int]) -> tuple[float, ...]:
    counts = [0.0] * LENGTH_BUCKETS
    for length in lengths:
        counts[length_bucket(length)] += 1
    return tuple(counts)
