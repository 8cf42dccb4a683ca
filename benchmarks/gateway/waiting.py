"""What a gateway adds to the time to the first content, and whether it ever waits for a delayed acknowledgement.

A sender that leaves Nagle's algorithm on holds a small segment back until the one before is acknowledged, which the
kernel delays by some 40 ms. Requests that are late by about that much are counted at each load: one at a time, 40 a
second, and as many as the core can take.
"""

from collections.abc import Sequence
from statistics import median

from benchmarks.gateway.options import Options
from benchmarks.gateway.rounds import Samples, Work, measured, ratios, spread
from benchmarks.gateway.script import Script
from benchmarks.gateway.stage import DIRECT, OURS, Stage
from benchmarks.harness import Bar, Measured, Row, median_row, quantile

ROUNDS = 5
RATE = 40.0
STEADY = Work("40 requests a second", Script(pace_s=0.02), 240, rate=RATE)
ALONE = Work("one request at a time", Script(pace_s=0.005), 100, connections=1)
FULL = Work("as many as it can", Script(apart=True), 1500, connections=8)
SLOW = {"litellm": 8}
LATE_MS = (35.0, 60.0)
BAR, MODE_BAR = Bar(1.2), Bar(0.01)


def waiting(stage: Stage, options: Options) -> Measured:
    """Rows of the added time, and of what is late at each load."""
    count = min(options.rounds, ROUNDS)
    near = [name for name in (OURS, "envoy") if name in stage.contestants]
    steady = measured(stage, STEADY, [DIRECT, *stage.contestants], count, SLOW)
    others = [measured(stage, work, [DIRECT, *near], count) for work in (ALONE, FULL)]
    rows = _added(steady, stage)
    for samples in (steady, *others):
        rows += [_late(samples, name, MODE_BAR if name == OURS else None) for name in near]
        rows.append(samples.errors())
    return rows, {samples.work.name: samples.details() for samples in (steady, *others)}


def _added(samples: Samples, stage: Stage) -> list[Row]:
    direct = samples.values(DIRECT, lambda one: one.first_ms)
    rows = []
    added = {name: _less(samples.values(name, lambda one: one.first_ms), direct) for name in stage.contestants}
    for name in stage.contestants:
        rows.append(median_row(f"{samples.work.name}: added TTFT p50, {name}", added[name], "ms"))
        if name in (OURS, "envoy"):
            late = quantile(_all_ms(samples, name), 0.99) - median(direct)
            rows.append(Row(f"{samples.work.name}: added TTFT p99, {name}", late, "ms"))
    for name in [name for name in ("envoy", "smg") if name in added]:
        found = ratios(added[OURS], added[name])
        bar = BAR if name == "envoy" else None
        what = f"{samples.work.name}: added TTFT p50, {OURS} over {name}"
        rows.append(Row(what, median(found), "ratio", spread=spread(found), bar=bar))
    return rows


def _late(samples: Samples, name: str, bar: Bar | None) -> Row:
    own, direct = _all_ms(samples, name), median(_all_ms(samples, DIRECT))
    share = late(own, base(median(own), direct))
    return Row(
        f"{samples.work.name}: share later by {LATE_MS[0]:.0f} to {LATE_MS[1]:.0f} ms, {name}", share, "", bar=bar
    )


def base(own_ms: float, direct_ms: float) -> float:
    """What lateness is counted from: its own median, so that a queue is not taken for a delay; but a gateway whose
    median is itself that late is held against no gateway at all."""
    return own_ms if own_ms - direct_ms < LATE_MS[0] else direct_ms


def late(first_ms: Sequence[float], base_ms: float) -> float:
    """The share of requests that are late by what a delayed acknowledgement takes."""
    low, high = LATE_MS
    return sum(low <= one - base_ms < high for one in first_ms) / len(first_ms) if first_ms else 1.0


def _all_ms(samples: Samples, name: str) -> list[float]:
    return [first * 1e3 for one in samples.by_name[name] for first in one.tally.first_s]


def _less(mine: Sequence[float], direct: Sequence[float]) -> list[float]:
    return [one - other for one, other in zip(mine, direct, strict=True)]
