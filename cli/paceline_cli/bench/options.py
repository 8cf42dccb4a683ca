"""From command-line words to a profile: pure. Every default is stated here and nowhere else."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from paceline_cli.bench.profiles import Profile, burst, poisson, resolve_rate, steady
from paceline_core.errors import InvalidInput
from paceline_core.units import seconds


class ProfileName(StrEnum):
    """The profiles that `--profile` knows."""

    POISSON = "poisson"
    STEADY = "steady"
    BURST = "burst"


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of every request."""

    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """What the user wrote; None takes the profile's default."""

    profile: ProfileName
    rate: float | None = None
    burst_rate: str = "6x"
    duration: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None


_RATES: Mapping[ProfileName, float] = {
    ProfileName.POISSON: 2.0,
    ProfileName.STEADY: 2.0,
    ProfileName.BURST: 1.5,
}
_SIZES: Mapping[ProfileName, Size] = {
    ProfileName.POISSON: Size(512, 64),
    ProfileName.STEADY: Size(512, 64),
    ProfileName.BURST: Size(8192, 16),
}
_DURATIONS: Mapping[ProfileName, str] = {
    ProfileName.POISSON: "60s",
    ProfileName.STEADY: "60s",
    ProfileName.BURST: "30s,120s,120s",
}


def profile_of(options: BenchOptions) -> Profile:
    """The profile that the options describe; raises InvalidInput naming the option."""
    size = _SIZES[options.profile]
    rate = _RATES[options.profile] if options.rate is None else options.rate
    prompt = size.prompt if options.prompt_tokens is None else options.prompt_tokens
    output = size.output if options.output_tokens is None else options.output_tokens
    spans = _spans(options.duration or _DURATIONS[options.profile])
    if options.profile is ProfileName.BURST:
        if len(spans) != 3:
            raise InvalidInput("duration", "a burst needs three, before, during and after it: 30s,120s,120s")
        peak = resolve_rate(options.burst_rate, rate)
        return burst(rate, peak, (spans[0], spans[1], spans[2]), prompt, output)
    if len(spans) != 1:
        raise InvalidInput("duration", f"{options.profile} takes one, such as 60s")
    make = poisson if options.profile is ProfileName.POISSON else steady
    return make(rate, spans[0], prompt, output)


def _spans(text: str) -> list[float]:
    try:
        return [seconds(part.strip()) for part in text.split(",")]
    except ValueError as error:
        raise InvalidInput("duration", str(error)) from None
