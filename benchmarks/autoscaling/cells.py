"""The nine workloads on which autoscalers are compared: each is tuned on one window and scored on others.

    cell        workload                                                     tuned on          scored on
    conv, code  Azure 2023, 6 and 10 copies at random phases                 first half hour   second
    codeC       Azure 2023 code, 6 copies within 30 s: a crowd               first             second
    mooncake    2 copies, with their shared prefixes                         first             second
    gamma       20 and 60 requests/s in turn, CV 3, conv's lengths           seed 1            seed 2
    r1          re-creation of a day of DeepSeek-R1 traffic, 2 copies        01:00-04:00       19:00-22:00
    az-code     rates of Azure 2024, noise of 8 % a minute, 2023's lengths   day 2, 07-10 h    days 3 and 4
    az-conv     the same, its rates scaled by 0.15                           day 2             days 3 and 4
    m-large     ServeGen by client, 0.1 of its rate, 18:30-19:40             day 4             days 5 and 6

A window begins with WARMUP_S that are neither scored nor paid. Half hours of a log repeat from their end. A window has
about 100,000 requests at most; az-conv and m-large are scaled to that. Random draws follow from the seed alone.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import exp, log1p
from random import Random

from benchmarks.simulator.cells import LIMITS, trace
from benchmarks.traces import folder

from paceline_simulator.servegen import recreate
from paceline_simulator.traces import TraceRequest, read_trace
from paceline_simulator.workloads import combine, copies, mmpp, resampled, varying

WARMUP_S = 600.0
HOUR_S, DAY_S = 3600.0, 86_400.0
HALF_S = HOUR_S / 2
_NOISE = 0.08
_AZURE_SCALE = {"code": 1.0, "conv": 0.15}
CROWD_S = 30.0


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of a workload, `seconds` long without its warm-up; `draw` makes its requests from a seed."""

    name: str
    seconds: float
    draw: Callable[[int], list[TraceRequest]]

    @property
    def end(self) -> float:
        return WARMUP_S + self.seconds

    def requests(self, seed: int) -> list[TraceRequest]:
        """Those that fit into the model's context; the same for the same seed."""
        fitting = [r for r in self.draw(seed) if r.prompt_tokens + r.output_tokens < LIMITS.max_model_len]
        return [request for request in fitting if request.at < self.end]


@dataclass(frozen=True, slots=True)
class Cell:
    """Policies are tuned on one window; those that hold on every scored one hold the cell."""

    name: str
    tuned: Window
    scored: Sequence[Window]


def cells() -> dict[str, Cell]:
    made = (
        _halves("conv", "conv", 6),
        _halves("code", "code", 10),
        _halves("codeC", "code", 6, CROWD_S),
        _halves("mooncake", "mooncake", 2),
        Cell("gamma", gamma("seed 1", 100), (gamma("seed 2", 200),)),
        Cell("r1", r1("01-04 h", 1.0), (r1("19-22 h", 19.0),)),
        Cell("az-code", azure("code", 2), (azure("code", 3), azure("code", 4))),
        Cell("az-conv", azure("conv", 2), (azure("conv", 3), azure("conv", 4))),
        Cell("m-large", m_large("day 4", 3), (m_large("day 5", 4), m_large("day 6", 5))),
    )
    return {cell.name: cell for cell in made}


def _halves(name: str, log: str, times: int, crowd_s: float | None = None) -> Cell:
    halves = ("first half hour", 0.0), ("second half hour", HALF_S)
    first, second = (part(name, log, times, label, start_s, HALF_S, crowd_s) for label, start_s in halves)
    return Cell(name, first, (second,))


def part(  # noqa: PLR0913, PLR0917 - what names a part
    name: str, log: str, times: int, label: str, start_s: float, long_s: float, crowd_s: float | None = None
) -> Window:
    """Copies of a part of a log, repeated to half an hour."""

    def draw(seed: int) -> list[TraceRequest]:
        random = Random(f"{name} {label} {seed}")
        span_s, end_s = WARMUP_S + HALF_S, start_s + long_s
        return copies(trace(log), times, random, start_s=start_s, end_s=end_s, span_s=span_s, crowd_s=crowd_s)

    return Window(label, HALF_S, draw)


def gamma(label: str, offset: int) -> Window:
    def draw(seed: int) -> list[TraceRequest]:
        random = Random(f"gamma {offset + seed}")
        arrivals = mmpp((20.0, 60.0), 450.0, random, cv=3.0)
        return combine(arrivals, resampled(trace("conv")), random, WARMUP_S + HALF_S)

    return Window(label, HALF_S, draw)


def r1(label: str, hour: float) -> Window:
    """The file is one day at a quarter of the service's rate; copies begin a few seconds apart, as one crowd."""
    seconds = 3 * HOUR_S

    def draw(seed: int) -> list[TraceRequest]:
        start_s = hour * HOUR_S - WARMUP_S
        found = read_trace(folder() / "servegen_r1_day_resampled.csv.gz")
        random = Random(f"r1 {label} {seed}")
        return copies(found, 2, random, start_s=start_s, end_s=start_s + WARMUP_S + seconds, crowd_s=CROWD_S)

    return Window(label, seconds, draw)


def azure(kind: str, day: int) -> Window:
    """From 07:00 to 10:00; `kind` is code or conv."""
    seconds = 3 * HOUR_S
    start_s = (day - 1) * DAY_S + 7 * HOUR_S - WARMUP_S

    def draw(seed: int) -> list[TraceRequest]:
        random, rates = Random(f"azure {kind} {day} {seed}"), _azure_rates(kind)
        minutes = [_rate(rates, start_s + 60 * minute + 30) for minute in range(int((WARMUP_S + seconds) / 60))]
        noisy = [_AZURE_SCALE[kind] * rate * _log_normal(_NOISE, random) for rate in minutes]
        arrivals = varying(lambda at: noisy[min(int(at / 60), len(noisy) - 1)], max(noisy), random)
        return combine(arrivals, resampled(trace(kind)), random, WARMUP_S + seconds)

    return Window(f"day {day}", seconds, draw)


@cache
def _azure_rates(kind: str) -> list[tuple[float, float]]:
    """Middle of each ten minutes, and its requests a second."""
    with (folder() / "azure2024_week_rate_10min.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["service"] == kind]
    return [(float(row["t_s"]) + 300, float(row["req_per_min"]) / 60) for row in rows]


def _rate(points: Sequence[tuple[float, float]], at: float) -> float:
    """Linear between the middles of the ten minutes."""
    place = next(index for index, (time, _) in enumerate(points) if time > at)
    (before, low), (after, high) = points[place - 1 : place + 1]
    return low + (high - low) * (at - before) / (after - before)


def _log_normal(cv: float, random: Random) -> float:
    """A factor of mean 1."""
    variance = log1p(cv * cv)
    return exp(random.gauss(-variance / 2, variance**0.5))


def m_large(label: str, day: int) -> Window:
    seconds = 70 * 60.0

    def draw(seed: int) -> list[TraceRequest]:
        start_s = day * DAY_S + 18.5 * HOUR_S - WARMUP_S
        random = Random(f"m-large {day} {seed}")
        return recreate(folder(), "m-large", random, start_s=start_s, span_s=WARMUP_S + seconds, share=0.1)

    return Window(label, seconds, draw)
