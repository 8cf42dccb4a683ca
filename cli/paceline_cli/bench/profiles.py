"""Arrival profiles: pure schedules from a seed. Open loop: no time in them depends on an answer.

A profile is a row of phases, each with its own rate. Poisson arrivals restart their draw at a phase's border, which is
exact because they have no memory. The same profile and seed give the same schedule on every machine.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from paceline_cli.bench.samples import Arrival
from paceline_core.errors import InvalidInput

ARRIVALS_LIMIT = 1_000_000


class Spacing(StrEnum):
    """How arrivals of a phase are spread: memoryless, or one every 1/rate seconds."""

    POISSON = "poisson"
    EVEN = "even"


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """A stretch of one rate, in requests a second."""

    name: str
    duration: float
    rate: float


@dataclass(frozen=True, slots=True)
class Profile:
    """What to offer: phases in order, and the size of every request in tokens."""

    name: str
    phases: tuple[LoadPhase, ...]
    prompt_tokens: int
    output_tokens: int
    spacing: Spacing = Spacing.POISSON

    def __post_init__(self) -> None:
        for phase in self.phases:
            _check("duration", phase.duration)
            _check("rate", phase.rate)
        _check("prompt-tokens", self.prompt_tokens)
        _check("output-tokens", self.output_tokens)
        if self.duration and sum(phase.rate * phase.duration for phase in self.phases) > ARRIVALS_LIMIT:
            raise InvalidInput("rate", f"offers more than {ARRIVALS_LIMIT} requests; lower it or the duration")

    @property
    def duration(self) -> float:
        """Seconds from the first phase's start to the last one's end."""
        return sum(phase.duration for phase in self.phases)


def poisson(rate: float, duration: float, prompt_tokens: int, output_tokens: int) -> Profile:
    """One phase of memoryless arrivals."""
    return Profile("poisson", (LoadPhase("load", duration, rate),), prompt_tokens, output_tokens)


def steady(rate: float, duration: float, prompt_tokens: int, output_tokens: int) -> Profile:
    """One phase of evenly spaced arrivals."""
    return Profile("steady", (LoadPhase("load", duration, rate),), prompt_tokens, output_tokens, Spacing.EVEN)


def burst(
    rate: float,
    burst_rate: float,
    durations: tuple[float, float, float],
    prompt_tokens: int,
    output_tokens: int,
) -> Profile:
    """Calm, burst, calm again: `durations` of before, burst and after."""
    before, during, after = durations
    phases = (
        LoadPhase("before", before, rate),
        LoadPhase("burst", during, burst_rate),
        LoadPhase("after", after, rate),
    )
    return Profile("burst", phases, prompt_tokens, output_tokens)


def resolve_rate(text: str, base: float) -> float:
    """`12` is 12 requests a second, `6x` is six times `base`. Raises InvalidInput."""
    number, relative = (text[:-1], True) if text.endswith("x") else (text, False)
    try:
        value = float(number)
    except ValueError:
        raise InvalidInput("burst-rate", f"{text!r} is neither a rate such as 12 nor a multiple such as 6x") from None
    return value * base if relative else value


def schedule(profile: Profile, seed: int) -> Iterator[Arrival]:
    """All arrivals of a run in order of time."""
    random = Random(seed)  # noqa: S311 - a reproducible schedule, not a secret
    number, start = 0, 0.0
    for phase in profile.phases:
        for offset in _offsets(phase, profile.spacing, random):
            yield Arrival(number, start + offset, phase.name, profile.prompt_tokens, profile.output_tokens)
            number += 1
        start += phase.duration


def _offsets(phase: LoadPhase, spacing: Spacing, random: Random) -> Iterator[float]:
    if spacing is Spacing.EVEN:
        yield from (i / phase.rate for i in range(math.ceil(phase.duration * phase.rate)))
        return
    offset = random.expovariate(phase.rate)
    while offset < phase.duration:
        yield offset
        offset += random.expovariate(phase.rate)


def _check(field: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(field, f"{value} is not a number above 0")
