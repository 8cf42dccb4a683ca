"""Long prompts: 220 KB ones as fast as they go, and 400 KB ones with a thousand tokens of answer."""

from benchmarks.gateway.options import Options
from benchmarks.gateway.rounds import Work, measured
from benchmarks.gateway.script import Script
from benchmarks.gateway.stage import DIRECT, OURS, Stage
from benchmarks.harness import Bar, Measured, Row

ROUNDS = 5
KB = 1000
LONG = Work("220 KB prompts", Script(apart=True, prompt_tokens=55_000), 1200, connections=4, size=220 * KB)
LONGEST = Work(
    "400 KB prompts, 1,000 tokens",
    Script(tokens=1000, pace_s=0.002, prompt_tokens=100_000),
    32,
    connections=16,
    size=400 * KB,
)
SLOW = {"fastapi": 20, "litellm": 120}
EXCLUDED = ("fastapi", "litellm")
"""From the longest: LiteLLM takes many equal chunks for a loop, and FastAPI's share of the core would be all of it."""


def prompts(stage: Stage, options: Options) -> Measured:
    """Throughput over direct, and processor time over Envoy's."""
    count = min(options.rounds, ROUNDS)
    long = measured(stage, LONG, [DIRECT, *stage.contestants], count, SLOW)
    rows = list[Row]()
    for name in [name for name in long.by_name if name != DIRECT]:
        bar = Bar(0.35, at_least=True) if name == OURS else None
        rows.append(long.ratio("requests a second", name, DIRECT, lambda one: one.per_s, bar))
    rows.append(long.errors())
    names = [name for name in stage.contestants if name not in EXCLUDED]
    longest = measured(stage, LONGEST, names, count)
    for name in [name for name in longest.by_name if name != OURS]:
        bar = Bar(1.2) if name == "envoy" else None
        rows.append(longest.row("CPU a request", "ms", OURS, name, lambda one: one.cpu_ms))
        rows.append(longest.ratio("CPU a request", OURS, name, lambda one: one.cpu_ms, bar))
    rows.append(longest.errors())
    return rows, {one.work.name: one.details() for one in (long, longest)}
