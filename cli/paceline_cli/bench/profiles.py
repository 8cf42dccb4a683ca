"""Arrival profiles: pure schedules from a seed. Open loop: no time in them depends on an answer.

A profile is a list of phases, each with its own rate. Poisson arrivals are redrawn at a phase's border, which is
exact because they have no memory. The same profile and seed give the same schedule on every machine. All defaults of
the command line are here.

No two prompts of a profile have the same beginning, so that no prefix cache helps; a trace's prompts share what its
blocks name. Two probe answers show how many tokens a word takes and how many the chat template adds; then lengths are
exact to about a percent, and the report has the server's own count. Only the first words of a prompt or block are
random: drawing all of 8k would take the core that an emulated worker needs at that moment.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from paceline_cli.bench.openloop import Arrival
from paceline_core.errors import InvalidInput
from paceline_core.units import seconds
from paceline_simulator.traces import BLOCK

ARRIVALS_LIMIT = 1_000_000


class Spacing(StrEnum):
    """The spread of arrivals in a phase: memoryless, or one every 1/rate seconds."""

    POISSON = "poisson"
    EVEN = "even"


@dataclass(frozen=True, slots=True)
class LoadPhase:
    """A part of the profile with one rate, in requests a second."""

    name: str
    duration: float
    rate: float


@dataclass(frozen=True, slots=True)
class Profile:
    """The load to offer: phases in order, and the size of every request in tokens.

    Of a trace it is a summary, with mean sizes and no spacing.
    """

    name: str
    phases: tuple[LoadPhase, ...]
    prompt_tokens: int
    output_tokens: int
    spacing: Spacing | None = Spacing.POISSON

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
    return Profile("poisson", (LoadPhase("load", duration, rate),), prompt_tokens, output_tokens)


def steady(rate: float, duration: float, prompt_tokens: int, output_tokens: int) -> Profile:
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


def _offsets(phase: LoadPhase, spacing: Spacing | None, random: Random) -> Iterator[float]:
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


class ProfileName(StrEnum):
    POISSON = "poisson"
    STEADY = "steady"
    BURST = "burst"


@dataclass(frozen=True, slots=True)
class Size:
    prompt: int
    output: int


@dataclass(frozen=True, slots=True)
class BenchOptions:
    """Options as the user wrote them; None uses the profile's default."""

    profile: ProfileName | None = None
    rate: float | None = None
    burst_rate: str | None = None
    duration: str | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None


_RATES: Mapping[ProfileName, float] = {
    ProfileName.POISSON: 2.0,
    ProfileName.STEADY: 2.0,
    ProfileName.BURST: 1.5,
}
_BURST_RATE = "6x"
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
    name = options.profile or ProfileName.POISSON
    size = _SIZES[name]
    rate = _RATES[name] if options.rate is None else options.rate
    prompt = size.prompt if options.prompt_tokens is None else options.prompt_tokens
    output = size.output if options.output_tokens is None else options.output_tokens
    try:
        spans = [seconds(part.strip()) for part in (options.duration or _DURATIONS[name]).split(",")]
    except ValueError as error:
        raise InvalidInput("duration", str(error)) from None
    if name is ProfileName.BURST:
        if len(spans) != 3:
            raise InvalidInput("duration", "a burst needs three, before, during and after it: 30s,120s,120s")
        peak = resolve_rate(options.burst_rate or _BURST_RATE, rate)
        return burst(rate, peak, (spans[0], spans[1], spans[2]), prompt, output)
    if len(spans) != 1:
        raise InvalidInput("duration", f"{name} takes one, such as 60s")
    make = poisson if name is ProfileName.POISSON else steady
    return make(rate, spans[0], prompt, output)


PROBE_WORDS = 400
HEAD_WORDS = 16
WORDS = (
    "request", "answer", "token", "model", "worker", "gateway", "queue", "batch", "step", "replica", "cache", "page",
    "prompt", "stream", "latency", "prefill", "decode", "weights", "class", "tenant", "quota", "service", "promise",
    "time", "memory", "number", "share", "rate", "load", "pool", "first", "last", "long", "short", "small", "large",
    "each", "every", "other", "before", "after", "until", "while", "never", "more", "again", "together", "between",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Calibration:
    """The tokens of a prompt: `overhead` for the template, `per_word` for every word."""

    per_word: float
    overhead: float

    def words(self, tokens: int) -> int:
        return max(round((tokens - self.overhead) / self.per_word), 1)

    @property
    def block_words(self) -> int:
        """Words of a whole block of a trace, rounded up, so that its blocks cover a prompt."""
        return max(math.ceil(BLOCK / self.per_word), 1)


class Writer:
    """Writes prompts of common words, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random = Random(seed)  # noqa: S311 - reproducible prompts, not secrets
        self._tails: dict[int, str] = {}

    def text(self, words: int) -> str:
        """One line of `words` words; its first HEAD_WORDS are unique."""
        head = " ".join(self._random.choices(WORDS, k=min(words, HEAD_WORDS)))
        return self._completed(head, words)

    def shared_text(self, words: int, blocks: Iterable[int], block_words: int) -> str:
        """One line of `words` words in blocks of `block_words`; a block has the same words in every prompt."""
        texts: list[str] = []
        for block in blocks:
            random = Random(f"{self._seed} {block}")  # noqa: S311 - as above
            head = random.choices(WORDS, k=min(block_words, HEAD_WORDS))
            texts += self._completed(" ".join(head), block_words).split()
            if len(texts) >= words:
                break
        return " ".join(texts[:words])

    def _completed(self, head: str, words: int) -> str:
        """A beginning, and the same words after it for all texts of this length."""
        if words <= HEAD_WORDS:
            return head
        if words not in self._tails:
            self._tails[words] = " ".join(self._random.choices(WORDS, k=words - HEAD_WORDS))
        return f"{head} {self._tails[words]}"


def calibrate(short: int, long: int) -> Calibration:
    """Compute it from the token counts of a one-word and a `1 + PROBE_WORDS`-word prompt. Raises InvalidInput."""
    per_word = (long - short) / PROBE_WORDS
    if per_word <= 0:
        raise InvalidInput("usage", f"the server counted {short} tokens for 1 word and {long} for {1 + PROBE_WORDS}")
    return Calibration(per_word, max(short - per_word, 0.0))
