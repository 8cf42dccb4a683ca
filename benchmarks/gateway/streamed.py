"""What a request costs: processor time of the gateway, and requests a second of the core that it has.

An engine's events come one by one, so each has a segment of its own where the gateway keeps up; the second work sends
an answer's events in one go, as a worker does that has fallen behind.
"""

from benchmarks.gateway.options import Options
from benchmarks.gateway.rivals import RIVALS
from benchmarks.gateway.rounds import Sample, Samples, Work, measured
from benchmarks.gateway.script import Script
from benchmarks.gateway.stage import DIRECT, OURS, Stage
from benchmarks.harness import Bar, Measured, Row

REQUESTS = 2000
STREAMED = Work("streamed", Script(apart=True), REQUESTS)
AT_ONCE = Work("streamed, events at once", Script(), REQUESTS)
UNSTREAMED = Work("not streamed", Script(stream=False), REQUESTS)
CPU_BAR = Bar(1.5)
SPEED_BARS = {"smg": 1.4, "vllm-router": 1.2, "fastapi": 15.0, "litellm": 80.0}
SLOW = {name: rival.slow for name, rival in RIVALS.items()}


def streamed(stage: Stage, options: Options) -> Measured:
    """Both."""
    rows, details = _compared(stage, options, STREAMED, bars=True)
    near = [name for name in stage.contestants if name == "envoy" or name not in RIVALS]
    samples = measured(stage, AT_ONCE, near, options.rounds)
    return [*rows, *against_envoy(samples), samples.errors()], {**details, AT_ONCE.name: samples.details()}


def unstreamed(stage: Stage, options: Options) -> Measured:
    """The same answers whole."""
    return _compared(stage, options, UNSTREAMED, bars=False)


def _compared(stage: Stage, options: Options, work: Work, *, bars: bool) -> Measured:
    samples = measured(stage, work, [DIRECT, *stage.contestants], options.rounds, SLOW)
    rows = against_envoy(samples, CPU_BAR if bars else None)
    for name in [name for name in samples.by_name if name not in (DIRECT, OURS, "envoy")]:
        bar = Bar(SPEED_BARS[name], at_least=True) if bars and name in SPEED_BARS else None
        rows.append(samples.row("CPU a request", "ms", OURS, name, _cpu))
        if name not in RIVALS:
            rows.append(samples.ratio("CPU a request", OURS, name, _cpu))
        rows.append(samples.ratio("requests a second of a core", OURS, name, _speed, bar))
    rows.append(samples.ratio("requests a second", OURS, DIRECT, _speed))
    return [*rows, samples.errors()], {work.name: samples.details()}


def against_envoy(samples: Samples, bar: Bar | None = None) -> list[Row]:
    """Ours and Envoy, if it is there."""
    if "envoy" not in samples.by_name:
        return []
    return [
        samples.row("CPU a request", "ms", OURS, "envoy", _cpu),
        samples.ratio("CPU a request", OURS, "envoy", _cpu, bar),
        samples.row("requests a second of a core", "1/s", OURS, "envoy", _speed),
    ]


def _cpu(sample: Sample) -> float:
    return sample.cpu_ms


def _speed(sample: Sample) -> float:
    return sample.per_s
