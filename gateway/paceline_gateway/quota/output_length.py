"""How long an answer will be, to reserve for it: a high quantile of the answers so far, by tenant once enough is known.

A histogram with geometric bins and a fading memory, one for the class and one for each of its tenants. A quantile
rather than the mean: what is reserved too much comes back when the answer ends, what is reserved too little has
already been let through. Until a tenant is known it reserves no less than PRIOR, however short others' answers are:
else its first requests, all at once, would pass its limit together. Nor while it is `overexposed`: what is
open may pass what it has reserved by more than a minute's limit. A tenant that teaches short answers and then asks for
long ones, all at once, passes its limit per minute by that and what is then reserved too little, and pays it back
before anything else is let through; a month's budget it cannot pay back, and is guarded by more
(`usage/exposure.py`). `least` is what each choice has for certain (`min_tokens`, all of it with `ignore_eos`).
Bounded: `TENANTS` histograms of `BINS` numbers; who was seen least lately is forgotten first.
"""

from typing import Final

QUANTILE: Final = 0.9
PRIOR: Final = 256
MIN_SAMPLES: Final = 20
TENANTS: Final = 512
MEMORY: Final = 2000.0
BINS: Final = 80
_PER_DOUBLING: Final = 4
_STALE: Final = 16


class LengthHistogram:
    """Lengths of answers in tokens, whose high quantile is asked for."""

    __slots__ = ("_bins", "_fresh", "_quantile", "count")

    def __init__(self) -> None:
        self.count = 0.0
        self._bins = [0.0] * BINS
        self._quantile = 0
        self._fresh = 0

    def learn(self, tokens: int) -> None:
        self._bins[_bin(tokens)] += 1.0
        self.count += 1.0
        self._fresh -= 1
        if self.count > MEMORY:
            self._bins = [count / 2 for count in self._bins]
            self.count /= 2

    def quantile(self) -> int:
        """The upper edge of the bin that holds it; up to 16 answers old."""
        if self._fresh <= 0:
            self._fresh = min(_STALE, int(self.count) // 4)
            rest = self.count * QUANTILE
            for number, count in enumerate(self._bins):
                rest -= count
                if rest <= 1e-9:
                    self._quantile = _edge(number)
                    break
        return self._quantile


class OutputLengthEstimator:
    """Answers of one class of one service."""

    def __init__(self) -> None:
        self._all = LengthHistogram()
        self._tenants: dict[str, LengthHistogram] = {}

    def __len__(self) -> int:
        return len(self._tenants)

    def learn(self, tenant: str, tokens: int, choices: int) -> None:
        """An answer of so many tokens in so many choices has ended well."""
        each = -(-tokens // max(choices, 1))
        lengths = self._tenants.pop(tenant, None) or LengthHistogram()
        self._tenants[tenant] = lengths
        if len(self._tenants) > TENANTS:
            del self._tenants[next(iter(self._tenants))]
        lengths.learn(each)
        self._all.learn(each)

    def expected(
        self, tenant: str, most: int | None, choices: int, *, least: int = 0, overexposed: bool = False
    ) -> int:
        """Output tokens to reserve for a request: no more than it asks for, no less than it has for certain."""
        own = self._tenants.get(tenant)
        if own is not None and own.count >= MIN_SAMPLES:
            each = own.quantile()
        else:
            each = max(self._all.quantile(), PRIOR) if self._all.count >= MIN_SAMPLES else PRIOR
        each = max(each, least, PRIOR if overexposed else 0)
        return (each if most is None else min(each, most)) * max(choices, 1)


def _bin(tokens: int) -> int:
    """0 to 7 each have their own bin; from 8 on four bins a doubling."""
    if tokens < 8:
        return max(tokens, 0)
    doubling = tokens.bit_length() - 1
    quarter = (tokens >> (doubling - 2)) & 3
    return min(8 + (doubling - 3) * _PER_DOUBLING + quarter, BINS - 1)


def _edge(number: int) -> int:
    """The largest length in a bin."""
    if number < 8:
        return number
    doubling, quarter = divmod(number - 8, _PER_DOUBLING)
    return ((4 + quarter + 1) << (doubling + 1)) - 1
