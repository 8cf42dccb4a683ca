"""Memory under many slow streams: 2,000 at once, 5 tokens a second each, for ten minutes.

A stream lasts a minute and is followed by another, so that what the gateway keeps of a stream (its tokens, for a
resumption) stays the same in sum, and whatever grows is a leak. The growth is that of the least-squares line through
the resident memory of each second, once the first streams have been followed by the second ones.
"""

import asyncio
from collections.abc import Sequence

import uvloop
from benchmarks.gateway.client import Load, Tally
from benchmarks.gateway.contestant import Contestant
from benchmarks.gateway.options import Options
from benchmarks.gateway.script import Script
from benchmarks.gateway.stage import OURS, Stage
from benchmarks.gateway.work import bodies
from benchmarks.harness import Bar, Measured, Row

STREAMS = 2000
PACE_S = 0.2
SECONDS, QUICK_SECONDS = 600.0, 60.0
TOKENS, QUICK_TOKENS = 300, 60
SAMPLE_S = 1.0


def memory(stage: Stage, options: Options) -> Measured:
    """Peak and growth."""
    seconds, tokens = (QUICK_SECONDS, QUICK_TOKENS) if options.quick else (SECONDS, TOKENS)
    script = Script(tokens=tokens, pace_s=PACE_S)
    with stage.turn(OURS, script) as target:
        load = Load(target, script, bodies(256))
        tally, resident = uvloop.run(_watched(load, stage.contestants[OURS], seconds, tokens * PACE_S))
    steady = resident[int(2 * tokens * PACE_S / SAMPLE_S) : int(seconds / SAMPLE_S)]
    name = f"{STREAMS} streams for {seconds:.0f} s"
    rows = [
        Row(f"{name}: resident memory at most", max(resident), "MB", bar=Bar(600)),
        Row(f"{name}: growth of it", 100 * growth(steady), "%", bar=Bar(1)),
        Row(f"{name}: streams that ended well", tally.done, ""),
        Row(f"{name}: requests failed", tally.errors, "", bar=Bar(0)),
    ]
    return rows, {"resident_mb": resident, "complaints": tally.complaints}


def growth(values: Sequence[float]) -> float:
    """How much the line through them rises from the first to the last, as a share of their mean."""
    count = len(values)
    middle, mean = (count - 1) / 2, sum(values) / count
    slope = sum((at - middle) * value for at, value in enumerate(values))
    slope /= sum((at - middle) ** 2 for at in range(count)) or 1.0
    return slope * (count - 1) / mean


async def _watched(load: Load, contestant: Contestant, seconds: float, ramp_s: float) -> tuple[Tally, list[float]]:
    running = asyncio.create_task(load.kept(STREAMS, seconds, ramp_s))
    resident = []
    while not running.done():
        resident.append(contestant.memory_mb())
        await asyncio.sleep(SAMPLE_S)
    return await running, resident
