"""Applies min-p, top-k and top-p to a row without sorting it: finds each threshold by bisection.

One program for each row, and only rows with filters do any work; a round's data are loaded two tiles ahead. Thresholds
are compared in float32: if penalties or biases make logits that differ by less than its rounding, these count as equal.
Shares of tokens are float32, their sums float64: if the nucleus ends within a millionth of top-p, it may be one token
longer or shorter than in float64.
"""

import triton
import triton.language as tl

from paceline_kernels.sample import state
from paceline_kernels.sample.kernel import GREEDY, LOWEST, NO_ID, TEMPERATURE, WORDS, adjusted, changes

MIN_P = tl.constexpr(state.NUMBERS.index("min_p"))
TOP_P = tl.constexpr(state.NUMBERS.index("top_p"))
TOP_K = tl.constexpr(state.WHOLE.index("top_k"))


@triton.jit
def threshold_kernel(
    logits, stride, slots, positions, numbers, whole, bias_ids, biases, stop_ids, counts, cutoffs, lasts, candidates,
    vocab, TILE: tl.constexpr,
):  # fmt: skip
    """What min-p, top-k and top-p leave of one row: logits above a cutoff, and those at it up to a last token id.

    The adjusted logits are copied in float32; fewer and fewer of them are kept as the bisection narrows.
    """
    row = tl.program_id(0)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    at = numbers + slot * WORDS
    temperature, min_p, top_p = tl.load(at + TEMPERATURE), tl.load(at + MIN_P), tl.load(at + TOP_P)
    top_k = tl.load(whole + slot * WORDS + TOP_K)
    has_top_k = (top_k > 0) & (top_k < vocab)
    tl.store(cutoffs + row, LOWEST)
    tl.store(lasts + row, NO_ID)
    if (temperature < GREEDY) | ((min_p <= 0.0) & (top_p >= 1.0) & (has_top_k == 0)):
        return
    asked = (numbers, whole, bias_ids, biases, stop_ids, counts)
    logits += row.to(tl.int64) * stride
    candidates += row.to(tl.int64) * vocab
    low, high = _keep(candidates, logits, slot, tl.load(positions + row), asked, vocab, TILE)
    if (high == LOWEST) | (high == float("inf")):
        return

    rate = (1.0 / temperature).to(tl.float32)
    cutoff, size = low, vocab
    if min_p > 0.0:
        cutoff = tl.maximum(cutoff, (high + temperature * tl.log(tl.minimum(min_p, 1.0))).to(tl.float32))
    if has_top_k:
        kth, size = _threshold(top_k.to(tl.float64), low, high, rate, False, candidates, size, TILE)
        cutoff = tl.maximum(cutoff, kth)
    if top_p < 1.0:
        total, _count, _least, _most = _weigh(cutoff, high, rate, True, candidates, size, TILE)
        cutoff, size = _threshold(top_p * total, cutoff, high, rate, True, candidates, size, TILE)
        needed, tied = _needed(top_p * total, cutoff, high, rate, candidates, size, TILE)
        if needed < tied:
            tl.store(lasts + row, _last(needed, cutoff, logits, slot, tl.load(positions + row), asked, vocab, TILE))
    tl.store(cutoffs + row, cutoff)


@triton.jit
def _keep(candidates, logits, slot, position, asked, vocab, TILE: tl.constexpr):
    """Store the row's adjusted logits; returns the lowest and the highest of them, except -inf."""
    lows = tl.full([TILE], float("inf"), tl.float32)
    highs = tl.full([TILE], LOWEST, tl.float32)
    for first in range(0, vocab, TILE):
        y, ids = _tile(logits, first, slot, position, asked, vocab, TILE)
        tl.store(candidates + ids, y, mask=ids < vocab)
        lows = tl.where(y > LOWEST, tl.minimum(lows, y), lows)
        highs = tl.where(y > LOWEST, tl.maximum(highs, y), highs)
    tl.debug_barrier()
    return tl.min(lows, axis=0), tl.max(highs, axis=0)


@triton.jit
def _tile(logits, first, slot, position, asked, vocab, TILE: tl.constexpr):
    """Adjusted logits from `first` on, rounded to float32, and their ids."""
    ids = first + tl.arange(0, TILE)
    live = ids < vocab
    y = tl.load(logits + ids, mask=live, other=LOWEST).to(tl.float32)
    if changes(slot, position, asked):
        y = adjusted(y, ids, live, first, first + TILE, slot, position, asked, vocab).to(tl.float32)
    return y, ids


@triton.jit
def _threshold(wanted, low, high, rate, by_share, candidates, size, TILE: tl.constexpr):
    """The highest logit with at least `wanted` at or above it, `low` if all together are less; and how many are still
    kept, which include all at or above it.

    Bisects between two logits of the row and continues from those found next to the middle, so it ends when none is
    left between, after some 15 rounds. The cost of a round depends on how many are kept.
    """
    best = high
    while low < high:
        middle = 0.5 * low + 0.5 * high
        middle = tl.where(middle > low, middle, high)
        reached, count, least, most = _weigh(middle, best, rate, by_share, candidates, size, TILE)
        if reached >= wanted:
            low = least
            if count <= size // 4:
                size = _shrink(candidates, size, low, TILE)
        else:
            high = most
    return low, size


@triton.jit
def _weigh(threshold, best, rate, by_share, candidates, size, TILE: tl.constexpr):
    """How much is at or above a threshold: tokens, or their shares (the best one's is 1); the number of tokens; and the
    adjacent logits."""
    weights = tl.zeros([TILE], tl.float64)
    tokens = tl.zeros([TILE], tl.int32)
    least = tl.full([TILE], float("inf"), tl.float32)
    most = tl.full([TILE], LOWEST, tl.float32)
    for first in tl.range(0, size, TILE, num_stages=3):
        at = first + tl.arange(0, TILE)
        y = tl.load(candidates + at, mask=at < size, other=LOWEST)
        above = y >= threshold
        share = tl.where(by_share, tl.exp((y - best) * rate), 1.0)
        weights += tl.where(above, share, 0.0).to(tl.float64)
        tokens += above.to(tl.int32)
        least = tl.where(above, tl.minimum(least, y), least)
        most = tl.where(y < threshold, tl.maximum(most, y), most)
    return tl.sum(weights, axis=0), tl.sum(tokens, axis=0), tl.min(least, axis=0), tl.max(most, axis=0)


@triton.jit
def _shrink(candidates, size, low, TILE: tl.constexpr):
    """Keep only what is at or above `low`, moved to the front; returns how many that are.

    A tile is read whole before its scan, and written only after that, at most where it was read.
    """
    left = size * 0
    for first in range(0, size, TILE):
        at = first + tl.arange(0, TILE)
        y = tl.load(candidates + at, mask=at < size, other=LOWEST)
        stays = y >= low
        place = left + tl.cumsum(stays.to(tl.int32), axis=0) - 1
        tl.store(candidates + place, y, mask=stays)
        left += tl.sum(stays.to(tl.int32), axis=0)
    tl.debug_barrier()
    return left


@triton.jit
def _needed(wanted, cutoff, best, rate, candidates, size, TILE: tl.constexpr):
    """How many of the tokens at the cutoff the nucleus needs to reach `wanted`, and how many there are."""
    above = tl.zeros([TILE], tl.float64)
    tied = tl.zeros([TILE], tl.int32)
    for first in range(0, size, TILE):
        at = first + tl.arange(0, TILE)
        y = tl.load(candidates + at, mask=at < size, other=LOWEST)
        above += tl.where(y > cutoff, tl.exp((y - best) * rate), 0.0).to(tl.float64)
        tied += (y == cutoff).to(tl.int32)
    share = tl.exp((cutoff - best) * rate).to(tl.float64)
    return tl.maximum(tl.ceil((wanted - tl.sum(above, axis=0)) / share), 1.0), tl.sum(tied, axis=0)


@triton.jit
def _last(needed, cutoff, logits, slot, position, asked, vocab, TILE: tl.constexpr):
    """The id of the `needed`-th token at the cutoff."""
    last = tl.full([], NO_ID, tl.int32)
    seen = tl.full([], 0, tl.int32)
    for first in range(0, vocab, TILE):
        y, ids = _tile(logits, first, slot, position, asked, vocab, TILE)
        tied = (y == cutoff).to(tl.int32)
        reached = seen + tl.cumsum(tied, axis=0)
        last = tl.minimum(last, tl.min(tl.where((tied > 0) & (reached >= needed), ids, NO_ID), axis=0))
        seen += tl.sum(tied, axis=0)
    return last
