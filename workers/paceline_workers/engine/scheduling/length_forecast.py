"""How long outputs get, learnt by class, and the peak of KV memory that running requests will reach.

A request is expected to reach a quantile of those finished outputs of its class that were longer than it is by now;
before MIN_SAMPLES have finished, its own limit. The peak is LightLLM's ("Past-Future scheduler", ASPLOS 2025): in order
of what remains, longest first, when the i-th ends, the first i are alive and each has grown by its remainder.
Known hole: pages that requests share are assumed to stay until all end.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.scheduling.request import Request

QUANTILE = 0.8
MIN_SAMPLES = 32
WINDOW = 512
REVIEW_TOKENS = 64

Load = tuple[int, int]
"""What one request adds: output tokens still to come, pages of its own. Without tokens to come it does not grow."""


class Lengths:
    """The last WINDOW finished outputs of one class."""

    def __init__(self) -> None:
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def add(self, length: int) -> None:
        self._recent.append(length)
        insort(self._sorted, length)
        if len(self._recent) > WINDOW:
            del self._sorted[bisect_left(self._sorted, self._recent.popleft())]

    def remaining(self, produced: int, limit: int) -> int:
        """Tokens to come after `produced`, at most `limit`, at least 1. Longer than all samples: as much again."""
        if len(self._sorted) < MIN_SAMPLES:
            return limit
        longer = bisect_right(self._sorted, produced)
        if longer == len(self._sorted):
            return max(min(produced, limit), 1)
        place = longer + int((len(self._sorted) - longer) * QUANTILE)
        return max(min(self._sorted[place] - produced, limit), 1)


class Forecast:
    """Lengths of every class."""

    def __init__(self, max_model_len: int, review: int = REVIEW_TOKENS) -> None:
        self._max_model_len = max_model_len
        self._review = review
        self._lengths = {name: Lengths() for name in RequestClass}

    def observe(self, request: Request) -> None:
        self._lengths[request.request_class].add(request.produced)

    def remaining(self, request: Request) -> int:
        """Output tokens that it is expected to produce yet; looked up again every `review` tokens, or when passed."""
        return self.all_remaining((request,))[0]

    def all_remaining(self, requests: Iterable[Request]) -> list[int]:
        return [
            request.expected - produced
            if (produced := len(request.tokens) - request.prompt_len) < request.review
            else self._update(request, produced)
            for request in requests
        ]

    def forecast(self, request: Request, produced: int) -> int:
        """Output tokens that are expected after `produced`."""
        limit = min(request.max_tokens, self._max_model_len - request.prompt_len) - produced
        return self._lengths[request.request_class].remaining(produced, limit)

    def _update(self, request: Request, produced: int) -> int:
        remaining = self.forecast(request, produced)
        request.expected = produced + remaining
        request.review = produced + min(remaining, self._review)
        return remaining


def peak(loads: Sequence[Load], page_tokens: int) -> float:
    """Pages at the worst moment to come; `loads` with the longest to go first. Counted in tokens, so it is exact."""
    growing = loads if loads and loads[-1][0] else [load for load in loads if load[0]]
    used = sum([pages for _, pages in loads[len(growing) :]])
    worst = used * page_tokens
    for count, (remaining, pages) in enumerate(growing, 1):
        used += pages
        reached = used * page_tokens + count * remaining
        if reached > worst:  # noqa: PLR1730 - a call for each would take three times as long
            worst = reached
    return worst / page_tokens
