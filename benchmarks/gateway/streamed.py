"""What a request costs: processor time of the gateway, and requests a second of the core that it has.

Without a pace the core is the limit: events pile up before each gateway, are read together and go on together. At a
pace each event is read, looked at and written alone, as an engine sends them; that costs everybody more. The bar is
the same for both.
"""

from benchmarks.gateway.options import Options
from benchmarks.gateway.rivals import RIVALS
from benchmarks.gateway.rounds import Sample, Samples, Work, measured
from benchmarks.gateway.script import Script
from benchmarks.gateway.stage import DIRECT, OURS, Stage
from benchmarks.harness import Bar, Measured, Row

REQUESTS = 2000
STREAMED = Work("streamed", Script(apart=True), REQUESTS)
PACED = Work("streamed, 5 ms a token", Script(pace_s=0.005), REQUESTS)
UNSTREAMED = Work("not streamed", Script(stream=False), REQUESTS)
CPU_BAR = Bar(1.5)
SPEED_BARS = {"smg": 1.4, "vllm-router": 1.2, "fastapi": 15.0, "litellm": 80.0}
SLOW = {name: rival.slow for name, rival in RIVALS.items()}


def streamed(stage: Stage, options: Options) -> Measured:
    """Both."""
    rows, details = _compared(stage, options, STREAMED, bars=True)
    samples = measured(stage, PACED, [name for name in stage.contestants if SLOW.get(name, 1) == 1], options.rounds)
    for name in [name for name in samples.by_name if name != OURS]:
        bar = CPU_BAR if name == "envoy" else None
        rows.append(samples.row("CPU a request", "ms", OURS, name, _cpu))
        rows.append(samples.ratio("CPU a request", OURS, name, _cpu, bar))
    return [*rows, samples.errors()], {**details, PACED.name: samples.details()}


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
    floor = [samples.ratio("CPU a request", "bare", "envoy", _cpu)] if "bare" in samples.by_name else []
    return [
        *floor,
        samples.row("CPU a request", "ms", OURS, "envoy", _cpu),
        samples.ratio("CPU a request", OURS, "envoy", _cpu, bar),
        samples.row("requests a second of a core", "1/s", OURS, "envoy", _speed),
    ]


def _cpu(sample: Sample) -> float:
    return sample.cpu_ms


def _speed(sample: Sample) -> float:
    return sample.per_s
