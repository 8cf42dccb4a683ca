"""Whether one more request may run: it needs a slot, its pages now, and room for all pages at the predicted peak.

A request's expected length is a quantile of the finished outputs of its class that were longer than it is now; before
MIN_SAMPLES have finished, its own limit. The peak is LightLLM's ("Past-Future scheduler", ASPLOS 2025): order requests
by what remains, longest first; when the i-th ends, the first i still run and each has grown by its remainder. With an
attention window a request stops growing at a bounded number of pages, fewer once its prompt is computed; it counts with
that number from the start.

A class may reserve pages and slots: less urgent classes together may plan to use only the rest. The rule holds only at
admission, against the same predicted peak. Running requests are exempt, and if no less urgent request runs, the first
one is admitted whatever it needs. So the scheduler's argument against livelock still holds: the running ones end, then
the next begins. While a request waits for this reason, none that is as urgent or less may pass it.
Known hole: shared pages are assumed to stay until all requests end.
"""

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import accumulate
from math import ceil
from operator import itemgetter

from paceline_core.registry.enums import RequestClass
from paceline_workers.engine.kv_cache.manager import KVCacheManager
from paceline_workers.engine.scheduling.beams import pages_each
from paceline_workers.engine.scheduling.plan import SchedulerLimits
from paceline_workers.engine.scheduling.request import Request

QUANTILE = 0.8
MIN_SAMPLES = 32
WINDOW = 512
REVIEW_TOKENS = 64

Load = tuple[int, int]
"""What one request adds: output tokens still to come, and its own pages. Without tokens to come it does not grow."""


class Lengths:
    """The last WINDOW finished outputs of one class; `limited` of them ended at their request's own limit."""

    def __init__(self) -> None:
        self._recent: deque[tuple[int, bool]] = deque()
        self._sorted: list[int] = []
        self._limited = 0

    def add(self, length: int, *, limited: bool = False) -> None:
        self._recent.append((length, limited))
        self._limited += limited
        insort(self._sorted, length)
        if len(self._recent) > WINDOW:
            oldest, was_limited = self._recent.popleft()
            del self._sorted[bisect_left(self._sorted, oldest)]
            self._limited -= was_limited

    def remaining(self, produced: int, limit: int) -> int:
        """Tokens to come after `produced`, from 1 to `limit`. If it is longer than all samples: as many again."""
        if len(self._sorted) < MIN_SAMPLES:
            return limit
        longer = bisect_right(self._sorted, produced)
        if longer == len(self._sorted):
            return max(min(produced, limit), 1)
        place = longer + int((len(self._sorted) - longer) * QUANTILE)
        return max(min(self._sorted[place] - produced, limit), 1)

    def mean_remaining(self, outputs: Iterable[tuple[int, int]]) -> float:
        """Tokens expected to come in all, for outputs by what they have produced and what they still may.

        As many as have ended at their limit so far will; the others are as long as the mean of those that got as far.
        """
        lengths, sums = self._sorted, list(accumulate(self._sorted, initial=0))
        at_limit = self._limited / len(lengths) if len(lengths) >= MIN_SAMPLES else 1.0
        total = 0.0
        for produced, limit in outputs:
            begin, end = bisect_right(lengths, produced), bisect_right(lengths, produced + limit)
            longer, cut = len(lengths) - begin, len(lengths) - end
            ended = (sums[end] - sums[begin] + cut * (produced + limit)) / longer - produced if longer else limit
            total += at_limit * limit + (1 - at_limit) * ended
        return total


class Forecast:
    """The lengths of every class."""

    def __init__(self, max_model_len: int, review: int = REVIEW_TOKENS) -> None:
        self._max_model_len = max_model_len
        self._review = review
        self._lengths = {name: Lengths() for name in RequestClass}

    def observe(self, request: Request) -> None:
        limited = request.produced >= request.max_tokens
        self._lengths[request.request_class].add(request.produced, limited=limited)

    def remaining(self, request: Request) -> int:
        """Output tokens that it is still expected to produce; updated every `review` tokens, or when exceeded."""
        return self.all_remaining((request,))[0]

    def all_remaining(self, requests: Iterable[Request]) -> list[int]:
        return [
            request.expected - produced
            if (produced := len(request.tokens) - request.prompt_len) < request.review
            else self._update(request, produced)
            for request in requests
        ]

    def remaining_tokens(self, requests: Iterable[Request]) -> int:
        """Output tokens that all of these may be expected to produce on average, without a margin."""
        outputs: dict[RequestClass, list[tuple[int, int]]] = {}
        for request in requests:
            produced = request.produced
            outputs.setdefault(request.request_class, []).append((produced, self._limit(request) - produced))
        return round(sum(self._lengths[name].mean_remaining(found) for name, found in outputs.items()))

    def forecast(self, request: Request, produced: int) -> int:
        """Output tokens that are expected after `produced`."""
        return self._lengths[request.request_class].remaining(produced, self._limit(request) - produced)

    def _limit(self, request: Request) -> int:
        return min(request.max_tokens, self._max_model_len - request.prompt_len)

    def _update(self, request: Request, produced: int) -> int:
        remaining = self.forecast(request, produced)
        request.expected = produced + remaining
        request.review = produced + min(remaining, self._review)
        return remaining


def peak(loads: Sequence[Load], page_tokens: int) -> float:
    """Pages at the future peak; `loads` are ordered by remaining tokens, longest first. Exact: it counts in tokens."""
    growing = loads if loads and loads[-1][0] else [load for load in loads if load[0]]
    used = sum([pages for _, pages in loads[len(growing) :]])
    worst = used * page_tokens
    for count, (remaining, pages) in enumerate(growing, 1):
        used += pages
        reached = used * page_tokens + count * remaining
        if reached > worst:  # noqa: PLR1730 - calling max() each time would take three times as long
            worst = reached
    return worst / page_tokens


def reserved(
    urgency: int, joining: Sequence[Load], running: Sequence[tuple[int, Load]], limits: SchedulerLimits, total: int
) -> bool:
    """Whether loads of this urgency, with the `running` ones by urgency, would use what is reserved for others."""
    held_back = 0.0
    for place, name in enumerate(RequestClass):
        share = limits.reserved.get(name, 0.0)
        held_back += share
        others = [load for other, load in running if other > place]
        if not share or urgency <= place or not others:
            continue
        loads = sorted([*joining, *others], reverse=True)
        if len(loads) > (1 - held_back) * limits.max_seqs or peak(loads, limits.page_tokens) > (1 - held_back) * total:
            return True
    return False


class Admission:
    """Caches the running requests' loads until they change, since one step may check many requests."""

    def __init__(self, memory: KVCacheManager, limits: SchedulerLimits, forecast: Forecast) -> None:
        self._memory = memory
        self._limits = limits
        self._forecast = forecast
        self._loads: list[Load] | None = None
        self._common = 0

    def reserved(self, request: Request, running: Sequence[Request]) -> bool:
        """Whether it would use pages that are reserved for more urgent classes."""
        if not self._limits.reserved:
            return False
        joining = self._joining(request, self._memory.cost(request))
        loads = [(other.urgency, self._load(other)) for other in running]
        return reserved(request.urgency, joining, loads, self._limits, self._memory.pool.total)

    def debt(self, running: Sequence[Request]) -> int:
        """Pages that the running requests are predicted to need beyond all pages."""
        return max(ceil(self._peak((), running)) - self._memory.pool.total, 0)

    def remaining_tokens(self, running: Sequence[Request]) -> int:
        """Output tokens that the running requests are still expected to produce."""
        return self._forecast.remaining_tokens(running)

    def fits(self, request: Request, running: Sequence[Request]) -> bool:
        """Whether it may join the running requests."""
        if len(running) >= self._limits.max_seqs:
            return False
        cost = self._memory.cost(request)
        followers = each = 0
        if request.beams is not None:
            followers = len(request.beams.members) - 1
            each = pages_each(request.beams, self._limits, self._memory.max_pages)
        if len(running) + followers >= self._limits.max_seqs or cost + followers * each > self._memory.pool.available:
            return False
        if not running:
            return True
        if self.reserved(request, running):
            return False
        return self._peak(self._joining(request, cost), running) <= self._memory.pool.total

    def joined(self, request: Request) -> None:
        if self._loads is not None:
            insort(self._loads, self._load(request), key=_shortness)

    def left(self, request: Request) -> None:
        """It no longer runs, but still holds its pages. If it has grown since it was counted, count all again."""
        load = self._load(request)
        if self._loads is not None and load in self._loads:
            self._loads.remove(load)
        else:
            self._loads = None

    def changed(self) -> None:
        """The running requests have grown or produced tokens."""
        self._loads = None

    def _joining(self, request: Request, cost: int) -> list[Load]:
        """The load that it would add, and the loads of its search's other beams."""
        beams, first = request.beams, self._load(request, cost)
        if beams is None:
            return [first]
        follower = self._load(request, pages_each(beams, self._limits, self._memory.max_pages))
        return [first, *[follower] * (len(beams.members) - 1)]

    def _peak(self, joining: Sequence[Load], running: Sequence[Request]) -> float:
        if self._loads is None:
            if self._memory.max_pages is None:  # then requests drop no pages either
                own = [len(other.pages) - other.shared for other in running]
                self._loads = list(zip(self._forecast.all_remaining(running), own, strict=True))
            else:
                own = [other.own_pages for other in running]
                self._loads = list(map(self._load, running, own))
            self._loads.sort(key=itemgetter(0), reverse=True)
            self._common = max(self._memory.pool.held - sum(own), 0)
        loads = self._loads.copy()
        for load in joining:
            insort(loads, load, key=_shortness)
        return self._common + peak(loads, self._limits.page_tokens)

    def _load(self, request: Request, pages: int | None = None) -> Load:
        """Its load with `pages` pages of its own, by default those that it has."""
        remaining = self._forecast.remaining(request)
        pages = request.own_pages if pages is None else pages
        least, most = self._memory.min_pages, self._memory.max_pages
        if least is None or most is None:
            return remaining, pages
        bound = least if request.decoding else max(least, min(most, self._limits.pages(request.wanted)))
        if self._limits.pages(request.wanted + remaining) < bound:
            return remaining, pages
        return 0, max(bound - request.shared, pages)


def _shortness(load: Load) -> int:
    """A sort key: longest remaining output first."""
    return -load[0]
