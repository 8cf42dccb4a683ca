"""What a gateway adds to the time to the first content, and whether it ever waits for a delayed acknowledgement.

A sender that leaves Nagle's algorithm on holds a small segment back until the one before is acknowledged, which the
kernel delays by some 40 ms. Requests that are late by about that much are counted at each load: one at a time, 40 a
second, and as many as the core can take. At 40 a second every event passes alone, so what a request costs then is told
too.
"""

from collections.abc import Sequence
from statistics import median

from benchmarks.gateway.options import Options
from benchmarks.gateway.rivals import RIVALS
from benchmarks.gateway.rounds import Samples, Work, measured, ratios
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
    near = [name for name in stage.contestants if name == "envoy" or name not in RIVALS]
    steady = measured(stage, STEADY, [DIRECT, *stage.contestants], count, SLOW)
    every = [steady, *(measured(stage, work, [DIRECT, *near], count) for work in (ALONE, FULL))]
    rows = _added(steady)
    for name in [name for name in near if name != OURS and name in steady.by_name]:
        rows.append(steady.ratio("CPU a request", OURS, name, lambda one: one.cpu_ms))
    for samples in every:
        rows += [_late(samples, name, MODE_BAR if name == OURS else None) for name in near if name in samples.by_name]
        rows.append(samples.errors())
    return rows, {samples.work.name: samples.details() for samples in every}


def _added(samples: Samples) -> list[Row]:
    first = {name: samples.values(name, lambda one: one.first_ms) for name in samples.by_name}
    direct = first.pop(DIRECT)
    added = {name: [one - other for one, other in zip(mine, direct, strict=True)] for name, mine in first.items()}
    what, rows = f"{samples.work.name}: added TTFT", list[Row]()
    for name, values in added.items():
        rows.append(median_row(f"{what} p50, {name}", values, "ms"))
        if name in (OURS, "envoy"):
            rows.append(Row(f"{what} p99, {name}", quantile(_all_ms(samples, name), 0.99) - median(direct), "ms"))
    for name, bar in {"envoy": BAR, "smg": None}.items():
        if name in added:
            found = ratios(added[OURS], added[name])
            rows.append(median_row(f"{what} p50, {OURS} over {name}", found, "ratio", bar))
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
