"""Draws: the winner of each chunk of the vocabulary, then of the row; `threshold_kernel` finds what the filters leave.

A draw is the argmax of adjusted logits over temperature plus Gumbel noise. Float32 finds the tokens that could win, one
program for each chunk of the vocabulary, and float64 decides among these few (nearly always one) as numpy does. So the
draw equals that of the engine's numpy sampler at float32's cost. Random bits are the same, and so is noise except for
the last bits of a logarithm. Adjusted logits are computed in float64 wherever they are needed and are never stored;
rows that change none read their logits as they are.
"""

import triton
import triton.language as tl

from paceline_kernels.sample import state

TEMPERATURE = tl.constexpr(state.NUMBERS.index("temperature"))
REPETITION = tl.constexpr(state.NUMBERS.index("repetition"))
FREQUENCY = tl.constexpr(state.NUMBERS.index("frequency"))
PRESENCE = tl.constexpr(state.NUMBERS.index("presence"))
WORDS = tl.constexpr(state.WORDS)
SEED = tl.constexpr(state.WHOLE.index("seed"))
CHOICE = tl.constexpr(state.WHOLE.index("choice"))
LOGPROBS = tl.constexpr(state.WHOLE.index("logprobs"))
LEAST = tl.constexpr(state.WHOLE.index("least"))
END = tl.constexpr(state.WHOLE.index("end"))
BIASED = tl.constexpr(state.WHOLE.index("biases"))
STOPPING = tl.constexpr(state.WHOLE.index("stops"))
BIASES = tl.constexpr(state.BIASES)
STOPS = tl.constexpr(state.STOPS)
TOP = tl.constexpr(state.TOP)
GREEDY = tl.constexpr(state.GREEDY)
MOST = tl.constexpr(state.MOST)
NO_ID = tl.constexpr(state.NO_ID)
LOWEST = tl.constexpr(float("-inf"))
FINITE = tl.constexpr(-3e38)
"""A number that may be subtracted from -inf."""
SLACK = tl.constexpr(2e-4)
"""A bound on float32's error between two tokens that could win: 2e-5 of noise for each (the logarithm near 1), and as
much again from logits that are up to 45 temperatures below the best one."""


@triton.jit
def _philox(block, position, seed, choice):
    """The four words of blocks of Philox4x64-10 for purpose 0; all arguments uint64."""
    zero = block * 0
    a, b, c, d = block, zero + position, zero, zero
    for _ in tl.static_range(10):
        high_a, low_a = tl.umulhi(a, 0xD2E7470EE14C6C93), a * 0xD2E7470EE14C6C93
        high_c, low_c = tl.umulhi(c, 0xCA5A826395121157), c * 0xCA5A826395121157
        a, b, c, d = high_c ^ b ^ seed, low_c, high_a ^ d ^ choice, low_a
        seed += 0x9E3779B97F4A7C15
        choice += 0xBB67AE8584CAA73B
    return a, b, c, d


@triton.jit
def _bits(first, SIZE: tl.constexpr, position, seed, choice):
    """64 bits for each token id from `first`, a multiple of 4, on."""
    a, b, c, d = _philox((first // 4 + 1 + tl.arange(0, SIZE // 4)).to(tl.uint64), position, seed, choice)
    return tl.reshape(tl.join(tl.join(a, c), tl.join(b, d)), [SIZE])


@triton.jit
def _bits_of(token, position, seed, choice):
    """64 bits for one token id."""
    a, b, c, d = _philox((token // 4 + 1).to(tl.uint64), position, seed, choice)
    word = token % 4
    return tl.where(word < 2, tl.where(word == 0, a, b), tl.where(word == 2, c, d))


@triton.jit
def _rough_gumbel(raw):
    """In float32. Winners' noise comes from u near 1, where -log(u) is computed from 1 - u."""
    far = (raw >> 11).to(tl.float32) * 2.0**-53 + 2.0**-54
    near = ((raw ^ 0xFFFFFFFFFFFFFFFF) >> 11).to(tl.float32) * 2.0**-53 + 2.0**-54
    small = near * (1.0 + near * (0.5 + near * (1.0 / 3.0 + near * 0.25)))
    return -tl.log(tl.where(near < 2.0**-6, small, -tl.log(far)))


@triton.jit
def _gumbel(raw):
    """In float64, from the upper 53 bits."""
    uniform = ((raw >> 11).to(tl.float64) + 0.5) * 2.0**-53
    return -tl.log(-tl.log(uniform))


@triton.jit
def changes(slot, position, asked):
    """Whether the slot's request changes any logit before it is drawn."""
    numbers, whole, _bias_ids, _biases, _stop_ids, _counts = asked
    barred = (position < tl.load(whole + slot * WORDS + LEAST)) & (tl.load(whole + slot * WORDS + STOPPING) > 0)
    return barred | (tl.load(whole + slot * WORDS + BIASED) > 0) | _penalized(slot, numbers)


@triton.jit
def _penalized(slot, numbers):
    at = numbers + slot * WORDS
    return (tl.load(at + REPETITION) != 1.0) | (tl.load(at + FREQUENCY) != 0.0) | (tl.load(at + PRESENCE) != 0.0)


@triton.jit
def adjusted(x, ids, live, first, end, slot, position, asked, vocab):
    """Logits of `ids` (all from `first` to `end`) with bias, penalties and without premature stops, in float64."""
    numbers, whole, bias_ids, biases, stop_ids, counts = asked
    y = x.to(tl.float64)
    if tl.load(whole + slot * WORDS + BIASED) > 0:
        listed = tl.load(bias_ids + slot * 2 * WORDS + tl.arange(0, BIASES))
        count = tl.load(whole + slot * WORDS + BIASED).to(tl.int32)
        before = tl.minimum(tl.sum((listed < first).to(tl.int32)), count)
        until = tl.minimum(tl.sum((listed < end).to(tl.int32)), count)
        for at in range(before, until):
            bias = tl.load(biases + slot * WORDS + at)
            y = tl.where(ids == tl.load(bias_ids + slot * 2 * WORDS + at), y + bias, y)
    if _penalized(slot, numbers):
        y = _penalize(y, tl.load(counts + slot * vocab + ids, mask=live, other=0).to(tl.int32), slot, numbers)
    if position < tl.load(whole + slot * WORDS + LEAST):
        for at in range(tl.load(whole + slot * WORDS + STOPPING).to(tl.int32)):
            y = tl.where(ids == tl.load(stop_ids + slot * 2 * WORDS + at), LOWEST, y)
    return y


@triton.jit
def _penalize(y, count, slot, numbers):
    repetition = tl.load(numbers + slot * WORDS + REPETITION)
    made = count & MOST
    repeated = tl.where(y < 0, y * repetition, y / repetition)
    lowered = repeated - tl.load(numbers + slot * WORDS + FREQUENCY) * made.to(tl.float64)
    lowered = tl.where(made > 0, lowered - tl.load(numbers + slot * WORDS + PRESENCE), lowered)
    return tl.where(count != 0, lowered, y)


@triton.jit
def draw_kernel(
    logits, stride, slots, positions, numbers, whole, bias_ids, biases, stop_ids, counts, cutoffs, lasts,
    scores, tokens, tops, peaks, masses, width, vocab, SIZE: tl.constexpr,
):  # fmt: skip
    """For one row and chunk: the winning token and its score, the best adjusted logit, and the raw logits' mass."""
    row, chunk = tl.program_id(0), tl.program_id(1)
    slot = tl.load(slots + row).to(tl.int64)
    if slot < 0:
        return
    asked = (numbers, whole, bias_ids, biases, stop_ids, counts)
    position = tl.load(positions + row)
    first = chunk * SIZE
    ids = first + tl.arange(0, SIZE)
    live = ids < vocab
    logits += row.to(tl.int64) * stride
    x = tl.load(logits + ids, mask=live, other=LOWEST).to(tl.float32)
    place = row * width + chunk
    if tl.load(whole + slot * WORDS + LOGPROBS) >= 0:
        peak = tl.max(x, axis=0)
        tl.store(peaks + place, peak)
        tl.store(masses + place, tl.sum(tl.exp(x - tl.maximum(peak, FINITE)), axis=0))

    cutoff, last = tl.load(cutoffs + row), tl.load(lasts + row)
    broken = tl.max((x != x).to(tl.int32), axis=0)
    best = tl.max(x, axis=0).to(tl.float64)
    token = tl.min(tl.where(x == best.to(tl.float32), ids, NO_ID), axis=0)
    depth = x - tl.maximum(best.to(tl.float32), FINITE)
    able = (x > cutoff) | ((x == cutoff) & (ids <= last))
    if changes(slot, position, asked):
        y = adjusted(x, ids, live, first, first + SIZE, slot, position, asked, vocab)
        broken = tl.max((y != y).to(tl.int32), axis=0)
        best = tl.max(y, axis=0)
        token = tl.min(tl.where(y == best, ids, NO_ID), axis=0)
        depth = (y - tl.maximum(best, FINITE)).to(tl.float32)
        z = y.to(tl.float32)
        able = (z > cutoff) | ((z == cutoff) & (ids <= last))

    temperature = tl.load(numbers + slot * WORDS + TEMPERATURE)
    by_chance = (temperature >= GREEDY) & (best > LOWEST) & (best < float("inf"))
    score = tl.where(by_chance, LOWEST, best)
    if by_chance & (tl.max(able.to(tl.int32), axis=0) > 0):
        seed = tl.load(whole + slot * WORDS + SEED).to(tl.uint64)
        choice = tl.load(whole + slot * WORDS + CHOICE).to(tl.uint64)
        counter = position.to(tl.uint64)
        noise = _rough_gumbel(_bits(first, SIZE, counter, seed, choice))
        rough = tl.where(able & live, depth * (1.0 / temperature).to(tl.float32) + noise, LOWEST)
        near = tl.max(rough, axis=0)
        reach = near - SLACK
        while (near >= reach) & (near > LOWEST):
            at = tl.min(tl.where(rough == near, ids, NO_ID), axis=0)
            y = adjusted(tl.load(logits + at).to(tl.float32), at, True, at, at + 1, slot, position, asked, vocab)
            exact = y / temperature + _gumbel(_bits_of(at, counter, seed, choice))
            wins = (exact > score) | ((exact == score) & (at < token))
            token = tl.where(wins, at, token)
            score = tl.where(wins, exact, score)
            rough = tl.where(ids == at, LOWEST, rough)
            near = tl.max(rough, axis=0)
    tl.store(scores + place, score)
    tl.store(tokens + place, token)
    tl.store(tops + place, tl.where(broken > 0, float("nan"), best.to(tl.float32)))


@triton.jit
def pick_kernel(
    logits, stride, slots, positions, numbers, whole, stop_ids, counts, scores, tokens, tops, peaks, masses, width,
    vocab, drawn, logprobs, bests, top_ids, top_logprobs, stopped, chunks, SIZE: tl.constexpr, CHUNKS: tl.constexpr,
):  # fmt: skip
    """The row's winner among those of its chunks, whether it ends the request, its count, and log-probabilities."""
    row = tl.program_id(0)
    slot = tl.load(slots + row).to(tl.int64)
    tl.store(drawn + row, 0)
    tl.store(bests + row, 0.0)
    tl.store(stopped + row, 1)
    if slot < 0:
        return
    every = tl.arange(0, CHUNKS)
    there = every < chunks
    place = row * width + every
    top = tl.load(tops + place, mask=there, other=LOWEST)
    best = tl.max(tl.where(top == top, top, LOWEST), axis=0)
    best = tl.where(tl.max((top != top).to(tl.int32), axis=0) > 0, float("nan"), best)
    tl.store(bests + row, best)
    if (best == best) & (best > LOWEST) & (best < float("inf")):
        score = tl.load(scores + place, mask=there, other=LOWEST)
        winners = tl.where(score == tl.max(score, axis=0), tl.load(tokens + place, mask=there, other=NO_ID), NO_ID)
        token = tl.min(winners, axis=0)
        tl.store(drawn + row, token.to(tl.int64))
        position = tl.load(positions + row)
        listed = tl.load(stop_ids + slot * 2 * WORDS + tl.arange(0, STOPS))
        within = tl.arange(0, STOPS) < tl.load(whole + slot * WORDS + STOPPING)
        stops = tl.max(((listed == token) & within).to(tl.int32), axis=0) > 0
        stops = stops & (position >= tl.load(whole + slot * WORDS + LEAST))
        over = position + 1 >= tl.load(whole + slot * WORDS + END)
        tl.store(stopped + row, (stops | over).to(tl.int8))
        _note(slot, token, numbers, counts, vocab)
        wanted = tl.load(whole + slot * WORDS + LOGPROBS).to(tl.int32)
        if wanted >= 0:
            peak = tl.load(peaks + place, mask=there, other=LOWEST)
            mass = tl.load(masses + place, mask=there, other=0.0)
            _write_logprobs(
                logits + row.to(tl.int64) * stride, token, wanted, peak, mass, logprobs + row, top_ids + row * TOP,
                top_logprobs + row * TOP, vocab, SIZE, CHUNKS,
            )  # fmt: skip


@triton.jit
def _write_logprobs(
    logits, token, wanted, peak, mass, logprob, top_ids, top_logprobs, vocab, SIZE: tl.constexpr, CHUNKS: tl.constexpr
):
    """The token's log-probability and the best ones, each found in the chunk with the next best logit."""
    highest = tl.max(peak, axis=0)
    share = tl.exp(peak - highest)
    total = highest.to(tl.float64) + tl.log(tl.sum(mass.to(tl.float64) * share.to(tl.float64), axis=0))
    tl.store(logprob, (tl.load(logits + token).to(tl.float64) - total).to(tl.float32))
    reported, last = tl.full([], float("inf"), tl.float32), tl.full([], -1, tl.int32)
    for place in range(wanted):
        best = tl.max(peak, axis=0)
        chunk = tl.min(tl.where(peak == best, tl.arange(0, CHUNKS), CHUNKS - 1), axis=0)
        ids = chunk * SIZE + tl.arange(0, SIZE)
        x = tl.load(logits + ids, mask=ids < vocab, other=LOWEST).to(tl.float32)
        left = ((x < reported) | ((x == reported) & (ids > last))) & (ids < vocab)
        last = tl.min(tl.where(left & (x == best), ids, NO_ID), axis=0)
        reported = best
        left = left & ((x < reported) | (ids > last))
        peak = tl.where(tl.arange(0, CHUNKS) == chunk, tl.max(tl.where(left, x, LOWEST), axis=0), peak)
        tl.store(top_ids + place, tl.where(last < NO_ID, last, -1))
        tl.store(top_logprobs + place, (reported.to(tl.float64) - total).to(tl.float32))


@triton.jit
def _note(slot, token, numbers, counts, vocab):
    """Count the token in its slot's output, if the slot's request needs counts."""
    if _penalized(slot, numbers):
        at = counts + slot * vocab + token
        count = tl.load(at).to(tl.int32)
        tl.store(at, tl.where((count & MOST) < MOST, count + 1, count).to(tl.int16))
