"""Makes one report of samples and observations: pure, versioned, judged over *offered* requests.

A run is void if the numbers would describe this machine instead of the service: emulated steps ended late, or the
generator could not keep its own schedule. A request that failed in any way misses every target.

A percentile is interpolated linearly between the two closest ranks (rank q * (n - 1), numpy's default), and is never
shown without its n.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from paceline_cli.bench.observation import LATENESS_LIMIT, BenchObservation
from paceline_cli.bench.openloop import Arrival, Ending, RequestSample
from paceline_cli.bench.profiles import Profile
from paceline_core.errors import InvalidInput
from paceline_core.objects import Target
from paceline_core.objects.fields import Metric
from paceline_core.registry import RequestClass
from paceline_core.units import seconds


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in a few numbers, seconds; all None when `n` is 0."""

    n: int
    mean: float | None = None
    p50: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


def percentile(ordered: Sequence[float], q: float) -> float:
    """The q-quantile of a sorted, non-empty sequence."""
    rank = q * (len(ordered) - 1)
    low, high = math.floor(rank), math.ceil(rank)
    return ordered[low] + (ordered[high] - ordered[low]) * (rank - low)


def spread(values: Sequence[float]) -> Spread:
    if not values:
        return Spread(0)
    ordered = sorted(values)
    p50, p90, p95, p99 = (percentile(ordered, q) for q in (0.5, 0.9, 0.95, 0.99))
    return Spread(len(ordered), math.fsum(ordered) / len(ordered), p50, p90, p95, p99, ordered[-1])


_NAME = re.compile(r"^(ttft|tpot|e2e)_p(50|90|95|99)$")


def met(target: Target, sample: RequestSample) -> bool:
    """A single token has no TPOT and keeps it; an answer without text has no TTFT and misses it."""
    if sample.ending is not Ending.OK:
        return False
    value = latency(sample, target.metric)
    return target.metric == "tpot" if value is None else value <= target.limit(sample.prompt_tokens)


def latency(sample: RequestSample, metric: Metric) -> float | None:
    match metric:
        case "ttft":
            return sample.ttft
        case "tpot":
            return sample.tpot
        case "e2e":
            return sample.e2e


def parse_target(text: str, cls: RequestClass = RequestClass.INTERACTIVE) -> Target:
    """`ttft_p95=500ms` -> a target of that class. Raises InvalidInput."""
    name, _, limit = text.partition("=")
    match = _NAME.match(name)
    if match is None:
        raise InvalidInput("target", f"{text!r} is not like ttft_p95=500ms (ttft, tpot, e2e; p50, p90, p95, p99)")
    try:
        return Target(cls, cast("Metric", match[1]), int(match[2]) / 100, seconds(limit))
    except ValueError as error:
        raise InvalidInput("target", str(error)) from None


SCHEMA = "paceline.bench/v1"
WINDOW_S = 5.0
SEND_LATENESS_LIMIT_S = 0.1
LOSSES_SHOWN = 8
DEFINITIONS = {
    "percentile": "linear interpolation between closest ranks, rank q * (n - 1)",
    "attainment": "share of offered requests within the threshold; any request that did not end ok misses",
    "goodput": "offered requests that met every target's threshold",
    "ttft": "request sent, connection included, to the first event with text",
    "tpot": "(last - first event) / (n - 1), n = usage.completion_tokens >= 2",
    "itl": "gap between neighbouring events with text",
    "e2e": "request sent to the end of the answer",
    "lateness_p99_at_most": "upper edge of the histogram bucket that holds the p99",
}


@dataclass(frozen=True, slots=True)
class ClassAttainment:
    """A target over some requests; `ratio` is None when none were offered."""

    target: str
    threshold: float
    objective: float
    good: int
    offered: int
    ratio: float | None
    met: bool | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A part of the run, by time of arrival. Seconds, tokens, shares of 1."""

    name: str
    duration: float
    offered: int
    endings: Mapping[str, int]
    promise: tuple[ClassAttainment, ...]
    goodput_ratio: float | None
    goodput_per_s: float
    ttft: Spread
    tpot: Spread
    itl: Spread
    e2e: Spread
    send_lateness: Spread
    prompt_tokens: int
    output_tokens: int
    output_tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Window:
    """A few seconds of arrivals; `attained` says whether every target's objective held within them."""

    start: float
    end: float
    offered: int
    attainment: Mapping[str, float]
    attained: bool | None
    ttft_p95: float | None


@dataclass(frozen=True, slots=True)
class Loss:
    ending: str
    detail: str
    count: int


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a run; `verdict` is kept, missed or void."""

    started: str
    endpoint: str
    model: str
    profile: Profile
    seed: int
    verdict: str
    void_because: tuple[str, ...]
    cut_streams: int
    losses: tuple[Loss, ...]
    recovery_s: float | None
    overall: Summary
    phases: tuple[Summary, ...]
    timeline: tuple[Window, ...]
    observation: BenchObservation
    schema: str = SCHEMA
    definitions: Mapping[str, str] = field(default_factory=lambda: DEFINITIONS)


@dataclass(frozen=True, slots=True)
class Run:
    """A run's description in the report; `started` is RFC 3339 UTC. `arrivals`: a trace's, else drawn by profile."""

    started: str
    endpoint: str
    model: str
    profile: Profile
    seed: int
    targets: tuple[Target, ...]
    arrivals: tuple[Arrival, ...] = ()


def report(run: Run, samples: Sequence[RequestSample], seen: BenchObservation) -> Report:
    overall = summarise("all", run.profile.duration, samples, run.targets)
    timeline = tuple(windows(samples, run.targets, run.profile.duration))
    faults = tuple(_void(overall, seen))
    lost = Counter((str(sample.ending), sample.detail) for sample in samples if sample.ending is not Ending.OK)
    phases = []
    for phase in run.profile.phases:
        inside = [sample for sample in samples if sample.arrival.phase == phase.name]
        phases.append(summarise(phase.name, phase.duration, inside, run.targets))
    attained = all(part.met is not False for part in overall.promise)
    return Report(
        started=run.started,
        endpoint=run.endpoint,
        model=run.model,
        profile=run.profile,
        seed=run.seed,
        verdict="void" if faults else "kept" if attained else "missed",
        void_because=faults,
        cut_streams=overall.endings.get(Ending.CUT, 0),
        losses=tuple(Loss(ending, detail, count) for (ending, detail), count in lost.most_common(LOSSES_SHOWN)),
        recovery_s=recovery(run.profile, timeline),
        overall=overall,
        phases=tuple(phases),
        timeline=timeline,
        observation=seen,
    )


def summarise(name: str, duration: float, samples: Sequence[RequestSample], targets: Sequence[Target]) -> Summary:
    """Numbers over some samples, failed ones included; latencies only of those that ended ok."""
    ok = [sample for sample in samples if sample.ending is Ending.OK]
    good = sum(all(met(target, sample) for target in targets) for sample in ok)
    output = sum(sample.usage.output_tokens for sample in samples if sample.usage)
    return Summary(
        name=name,
        duration=duration,
        offered=len(samples),
        endings=dict(Counter(str(sample.ending) for sample in samples)),
        promise=tuple(attainment(target, samples) for target in targets),
        goodput_ratio=good / len(samples) if samples else None,
        goodput_per_s=good / duration,
        ttft=spread([value for sample in ok if (value := sample.ttft) is not None]),
        tpot=spread([value for sample in ok if (value := sample.tpot) is not None]),
        itl=spread([gap for sample in ok for gap in sample.gaps]),
        e2e=spread([value for sample in ok if (value := sample.e2e) is not None]),
        send_lateness=spread([value for sample in samples if (value := sample.lateness) is not None]),
        prompt_tokens=sum(sample.usage.prompt_tokens for sample in samples if sample.usage),
        output_tokens=output,
        output_tokens_per_s=output / duration,
    )


def attainment(target: Target, samples: Sequence[RequestSample]) -> ClassAttainment:
    good, offered = sum(met(target, sample) for sample in samples), len(samples)
    ratio = good / offered if offered else None
    held = None if ratio is None else ratio >= target.objective
    return ClassAttainment(target.name, target.seconds, target.objective, good, offered, ratio, held)


def windows(samples: Sequence[RequestSample], targets: Sequence[Target], duration: float) -> Iterator[Window]:
    start = 0.0
    while start < duration:
        end = min(start + WINDOW_S, duration)
        inside = [sample for sample in samples if start <= sample.arrival.at < end]
        parts = [attainment(target, inside) for target in targets]
        ratios = {part.target: part.ratio for part in parts if part.ratio is not None}
        times = sorted(value for sample in inside if (value := sample.ttft) is not None)
        attained = all(part.met for part in parts) if inside else None
        yield Window(start, end, len(inside), ratios, attained, percentile(times, 0.95) if times else None)
        start = end


def recovery(profile: Profile, timeline: Sequence[Window]) -> float | None:
    """Seconds from the start of the burst to the first window from which all of its windows attain; None if never.

    0 means that the promise was never broken; None also for a profile without a burst.
    """
    begin = 0.0
    for phase in profile.phases:
        end = begin + phase.duration
        if phase.name == "burst":
            inside = [window for window in timeline if begin <= window.start and window.end <= end]
            broken = [window.end for window in inside if window.attained is False]
            if not broken:
                return 0.0 if inside else None
            return broken[-1] - begin if broken[-1] < inside[-1].end else None
        begin = end
    return None


def _void(overall: Summary, seen: BenchObservation) -> Iterator[str]:
    if seen.emulation is not None and seen.emulation.late:
        yield f"the p99 of emulated steps' lateness is above {LATENESS_LIMIT:.0%} of a step"
    late = overall.send_lateness.p99
    if late is not None and late > SEND_LATENESS_LIMIT_S:
        yield f"the generator sent late: p99 {late * 1000:.0f} ms"
