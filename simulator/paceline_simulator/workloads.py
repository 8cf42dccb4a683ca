"""Workloads: arrival processes, lengths, and copies of a log.

Arrivals are generators of ascending times in seconds; `combine` gives each arrival its lengths. Everything random is
drawn from the caller's `Random`, so a seed names a workload.

Time is never compressed: a log is made denser by playing several copies of it at once. Copies start at random phases
(independent users: bursts do not coincide) or within a few seconds of each other (a crowd: they do).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, takewhile
from math import inf
from random import Random

from paceline_core.errors import InvalidInput
from paceline_simulator.traces import UNIQUE, TraceRequest

Lengths = Callable[[Random], TraceRequest]
"""Draws a request whose arrival is still to be set."""
Rate = Callable[[float], float]
"""Requests a second at a time."""


def poisson(rate: float, random: Random) -> Iterator[float]:
    """Independent arrivals at a constant `rate` in requests a second."""
    return gamma(rate, 1.0, random)


def gamma(rate: float, cv: float, random: Random) -> Iterator[float]:
    """Gaps with a coefficient of variation `cv`: above 1 in bursts, below 1 more even than Poisson."""
    _positive("rate", rate)
    _positive("cv", cv)
    shape, now = 1 / cv**2, 0.0
    while True:
        now += random.gammavariate(shape, 1 / (rate * shape))
        yield now


def mmpp(rates: Sequence[float], mean_s: float, random: Random, cv: float = 1.0) -> Iterator[float]:
    """Markov-modulated arrivals: each of the `rates` in turn, for an exponential time of `mean_s` seconds.

    Within a state gaps vary by `cv` (1: Poisson).
    """
    _positive("mean_s", mean_s)
    begin, place = 0.0, 0
    while True:
        end = begin + random.expovariate(1 / mean_s)
        for gap in gamma(rates[place], cv, random):
            if begin + gap >= end:
                break
            yield begin + gap
        begin, place = end, (place + 1) % len(rates)


def varying(rate: Rate, peak: float, random: Random) -> Iterator[float]:
    """Poisson arrivals at a rate that changes with time and never exceeds `peak` (Lewis and Shedler's thinning)."""
    return (at for at in poisson(peak, random) if random.random() * peak < rate(at))


def ramp(start: float, end: float, over_s: float) -> Rate:
    """A rate that rises or falls evenly from `start` to `end` and stays there."""
    _positive("over_s", over_s)
    return lambda at: start + (end - start) * min(at / over_s, 1.0)


def square(low: float, high: float, period_s: float, share: float = 0.5) -> Rate:
    """A rate that is `high` for a `share` of each period, from its start, and `low` for the rest."""
    _positive("period_s", period_s)
    return lambda at: high if (at % period_s) < share * period_s else low


def resampled(requests: Sequence[TraceRequest]) -> Lengths:
    """Lengths drawn from a log, with replacement; contents are unique."""
    if not requests:
        raise InvalidInput("lengths", "are drawn from an empty log; pass one with requests")
    return lambda random: replace(random.choice(requests), blocks=())


def fixed(prompt_tokens: int, output_tokens: int) -> Lengths:
    """The same lengths for every request."""
    return lambda _: TraceRequest(0.0, prompt_tokens, output_tokens)


def mixed(usual: Lengths, rare: Lengths, share: float) -> Lengths:
    """`rare` for a `share` of the requests, such as prompts near the model's limit that hold up a whole step."""
    return lambda random: (rare if random.random() < share else usual)(random)


def combine(arrivals: Iterable[float], lengths: Lengths, random: Random, span_s: float) -> list[TraceRequest]:
    """The arrivals of the first `span_s` seconds, with their lengths."""
    return [replace(lengths(random), at=at) for at in takewhile(lambda at: at < span_s, arrivals)]


def closed_loop(
    clients: int, think_s: float, lengths: Lengths, random: Random
) -> tuple[list[TraceRequest], Callable[[object, float], TraceRequest]]:
    """Clients that send their next request an exponential time of `think_s` seconds after the answer to the last one.

    Returns their first requests, and the function that gives the next one when one has ended at a time.
    """
    _positive("think_s", think_s)

    def following(_: object, now: float) -> TraceRequest:
        return replace(lengths(random), at=now + random.expovariate(1 / think_s))

    return sorted((following(None, 0.0) for _ in range(clients)), key=lambda request: request.at), following


def window(
    requests: Sequence[TraceRequest], start_s: float = 0.0, end_s: float = inf
) -> tuple[list[TraceRequest], float]:
    """The log's requests from `start_s` to `end_s`, and the seconds from `start_s` to the end of both.

    A log ends one mean gap after its last request.
    """
    rows = [request for request in requests if start_s <= request.at < end_s]
    if not rows:
        raise InvalidInput(
            "trace", f"has no request from {start_s:g} s to {end_s:g} s; its last one is at {requests[-1].at:g} s"
        )
    length = min(end_s, requests[-1].at + (requests[-1].at - requests[0].at) / max(len(requests) - 1, 1)) - start_s
    _positive("the span of the trace", length)
    return rows, length


def copies(  # noqa: PLR0913 - what names a workload made of a log
    requests: Sequence[TraceRequest],
    times: int,
    random: Random,
    *,
    start_s: float = 0.0,
    end_s: float = inf,
    span_s: float | None = None,
    crowd_s: float | None = None,
) -> list[TraceRequest]:
    """The log's requests from `start_s` to `end_s`, `times` times at once, for `span_s` seconds (None: their own span).

    Each copy repeats from its end, shifted by a random phase, or by a normal one of `crowd_s` seconds. Copies share no
    content; within a copy equal blocks stay equal.
    """
    rows, length = window(requests, start_s, end_s)
    span_s = length if span_s is None else span_s
    found: list[TraceRequest] = []
    for number in range(times):
        phase = random.uniform(0.0, length) if crowd_s is None else random.gauss(0.0, crowd_s) % length
        for request in rows:
            first = (request.at - start_s + phase) % length
            content = tuple(block * times + number for block in request.blocks)
            found += (replace(request, at=at, blocks=content) for at in _repeats(first, length, span_s))
    if any(max(request.blocks, default=0) >= UNIQUE for request in found):
        raise InvalidInput("copies", f"{times} copies of this trace have more blocks than there are ids; use fewer")
    return sorted(found, key=lambda request: request.at)


def _repeats(first: float, period: float, end: float) -> Iterator[float]:
    return takewhile(lambda at: at < end, (first + period * turn for turn in count()))


def _positive(name: str, value: float) -> None:
    if not value > 0:
        raise InvalidInput(name, f"is {value:g}; it must be above 0")
