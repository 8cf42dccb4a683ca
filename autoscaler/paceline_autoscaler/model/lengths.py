"""How long the requests of the last day were, by class: a summary of fixed size that is stored with the learned state.

No decision depends on it: it says what requests to expect where traffic is simulated. Pure.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import exp

from paceline_core.registry.enums import RequestClass

MEMORY_S = 86_400.0
"""How long a request counts, on average."""


@dataclass(frozen=True, slots=True)
class LengthSummary:
    """Sums over the completed requests of a class; `prompts` and `outputs`: requests by `wire.length_bucket`."""

    name: RequestClass
    requests: float = 0.0
    prompt_tokens: float = 0.0
    cached_tokens: float = 0.0
    output_tokens: float = 0.0
    prompts: tuple[float, ...] = ()
    outputs: tuple[float, ...] = ()

    def plus(self, other: "LengthSummary", weight: float = 1.0) -> "LengthSummary":
        """With the other's requests, each of which counts `weight`."""
        return LengthSummary(
            self.name,
            self.requests + weight * other.requests,
            self.prompt_tokens + weight * other.prompt_tokens,
            self.cached_tokens + weight * other.cached_tokens,
            self.output_tokens + weight * other.output_tokens,
            _added(self.prompts, other.prompts, weight),
            _added(self.outputs, other.outputs, weight),
        )

    def rounded(self) -> "LengthSummary":
        """As it is stored: to a tenth of a request."""
        return LengthSummary(
            self.name,
            round(self.requests, 1),
            round(self.prompt_tokens, 1),
            round(self.cached_tokens, 1),
            round(self.output_tokens, 1),
            tuple(round(count, 1) for count in self.prompts),
            tuple(round(count, 1) for count in self.outputs),
        )


Lengths = tuple[LengthSummary, ...]
"""A service's, one for each class that has had requests."""


def with_requests(lengths: Iterable[LengthSummary], new: Iterable[LengthSummary], passed_s: float) -> Lengths:
    """With new requests; those of before count less by what has passed since."""
    fading = exp(-max(passed_s, 0.0) / MEMORY_S)
    found: Mapping[RequestClass, LengthSummary] = {
        one.name: LengthSummary(one.name).plus(one, fading) for one in lengths
    }
    for one in new:
        found = {**found, one.name: found.get(one.name, LengthSummary(one.name)).plus(one)}
    return tuple(found.values())


def _added(counts: tuple[float, ...], more: tuple[float, ...], weight: float) -> tuple[float, ...]:
    size = max(len(counts), len(more))
    pairs = zip(_padded(counts, size), _padded(more, size), strict=True)
    return tuple(count + weight * other for count, other in pairs)


def _padded(counts: tuple[float, ...], size: int) -> tuple[float, ...]:
    return counts + (0.0,) * (size - len(counts))
