"""One loop over a program's tiles, across the borders of heads and sequences, so that loads are prefetched there too.

The loop's state (which tile of which head of which sequence) depends only on the work list, not on computed values. So
Triton's pipeliner keeps the next tiles' copies in flight while one head is finished and the next one begins. A tile
needs one dependent load, of its page's number; the first tile finds all its data in the program's entry.
"""

import triton
import triton.language as tl

from paceline_kernels.work_list.kernel import text_tile

HIGHEST: tl.constexpr = tl.constexpr(14)
"""Two to this power is about the largest query and weight of a product with bytes: float16 also holds 2^-28 of it."""


@triton.jit
def _query(place, real, factor, data, NARROW: tl.constexpr):
    """Queries for the product [ROWS, DIM], and the factor of its scores.

    fp8 converts to float16 exactly, two numbers in one instruction; to bfloat16 it takes five. So fp8 is multiplied in
    float16, and a power of two scales queries that may be outside its range.
    """
    query = tl.load(place, mask=real[:, None], other=0.0)
    if NARROW:
        wide = query.to(tl.float32)
        exponent = tl.max(tl.abs(wide)).to(tl.int32, bitcast=True) & 0x7F800000
        size = tl.where(exponent > 0, exponent.to(tl.float32, bitcast=True), 1.0) * 2.0**-HIGHEST
        half: tl.constexpr = data.dtype.element_ty == tl.float8e4nv and query.dtype != tl.float32
        query = (wide / size).to(tl.float16 if half else query.dtype)
        factor *= size
    return query, factor


@triton.jit(do_not_specialize=["table_stride", "room"])
def decode_kernel(
    query,  # [S, QUERIES, HEADS, DIM]
    data,  # [pages, KV_HEADS, 2, PAGE, DIM]
    scales,  # [pages, KV_HEADS, 2, PAGE] if NARROW
    table,  # [S, table_stride]
    entries,
    live,
    sinks,  # [HEADS] if SINKS
    out,  # as query
    lse,  # [S, QUERIES, HEADS] if LSE
    partials,  # [2 * programs, room, DIM]
    partial_lses,  # [2 * programs, room]
    scale,
    table_stride,
    room,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    QUERIES: tl.constexpr,
    DIM: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    ROWS: tl.constexpr,
    WINDOW: tl.constexpr,
    FIRST: tl.constexpr,
    CAP: tl.constexpr,
    NARROW: tl.constexpr,
    SINKS: tl.constexpr,
    LSE: tl.constexpr,
    STAGES: tl.constexpr,
):
    LOG2E: tl.constexpr = 1.4426950408889634
    GROUP: tl.constexpr = HEADS // KV_HEADS
    FIRST_TILES: tl.constexpr = (FIRST + TILE - 1) // TILE
    FIRST_PAGES: tl.constexpr = (FIRST + PAGE - 1) // PAGE
    program = tl.program_id(0)
    entry = entries + program * 8
    count = tl.load(entry)
    segment = tl.load(entry + 1)
    tile = tl.load(entry + 2)
    page = tl.load(entry + 3)
    sequence = tl.load(entry + 4)
    length = tl.load(entry + 5)
    tiles = tl.load(entry + 6)
    dropped = tl.load(entry + 7)

    factor = scale * LOG2E
    place = segment // KV_HEADS
    head = segment % KV_HEADS

    rows = tl.arange(0, ROWS)
    dims = tl.arange(0, DIM)
    inside = tl.arange(0, TILE)
    real = rows < GROUP * QUERIES
    lanes = rows // GROUP * HEADS + rows % GROUP
    at = sequence * (QUERIES * HEADS) + head * GROUP + lanes
    q, unit = _query(query + at[:, None] * DIM + dims, real, factor, data, NARROW)
    top = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    mixed = tl.zeros([ROWS, DIM], tl.float32)
    whole = tile == 0

    for step in tl.range(0, count, num_stages=STAGES):
        number = text_tile(tile, length, tiles, TILE, WINDOW, FIRST_TILES)
        token = (page.to(tl.int64) * KV_HEADS + head) * (2 * PAGE) + number % (PAGE // TILE) * TILE
        position = number * TILE + inside
        written = position < length
        keys = tl.load(data + token * DIM + (inside[:, None] * DIM + dims))
        scores = tl.dot(q, tl.trans(keys.to(q.dtype)), input_precision="ieee")
        if NARROW:
            scores *= tl.load(scales + token + inside) * unit
            share = tl.load(scales + token + PAGE + inside)
        else:
            scores *= factor
        if CAP > 0:  # tanh by its exponential
            scores = CAP * LOG2E * (1 - 2 / (tl.exp2(scores * (2 / CAP)) + 1))
        own = length - QUERIES + rows // GROUP
        seen = position <= own[:, None]
        if WINDOW:
            seen &= (position > own[:, None] - WINDOW) | (position < FIRST)
        scores = tl.where(seen, scores, float("-inf"))
        if NARROW:
            # Weights are stored in few bits and include their values' scales: so the maximum includes the scales too.
            # The logarithm of a scale is read from its bits, too small by 0.09 at most; all below 2^-64 are equal.
            bits = tl.maximum(share.to(tl.int32, bitcast=True), 63 << 23).to(tl.float32)
            higher = tl.maximum(top, tl.max(scores + (bits * 2.0**-23 - 127 - HIGHEST), 1))
        else:
            higher = tl.maximum(top, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weights = tl.exp2(scores - base[:, None])
        fade = tl.exp2(top - base)
        total = total * fade + tl.sum(weights, 1)
        if NARROW:
            weights *= tl.where(written, share, 0.0)
        # Memory after the last token may hold anything: 0 * NaN would be NaN.
        values = tl.load(data + (token + PAGE) * DIM + (inside[:, None] * DIM + dims), mask=written[:, None], other=0.0)
        values = values.to(q.dtype)
        if NARROW:
            # Only a hint: bytes that are widened before they are laid out for the product are copied and read by 16.
            even, odd = tl.split(values.reshape(TILE, DIM // 2, 2))
            values = tl.join(even, odd).reshape(TILE, DIM)
        mixed = tl.dot(weights.to(q.dtype), values, mixed * fade[:, None], input_precision="ieee")
        top = higher

        ends = tile + 1 == tiles
        if ends | (step + 1 == count):
            at = sequence * (QUERIES * HEADS) + head * GROUP + lanes
            if whole & ends:
                if SINKS:
                    sink = tl.load(sinks + head * GROUP + rows % GROUP) * LOG2E
                    total += tl.where(total > 0, tl.exp2(sink - top), 0.0)
                result = mixed * (1 / tl.where(total > 0, total, 1.0))[:, None]
                tl.store(out + at[:, None] * DIM + dims, result, mask=real[:, None])
                if LSE:
                    tl.store(lse + at, (top + tl.log2(total)) / LOG2E, mask=real)
            else:
                result = mixed * (1 / tl.where(total > 0, total, 1.0))[:, None]
                slot = (2 * program + whole.to(tl.int32)) * room + rows
                tl.store(partials + slot[:, None] * DIM + dims, result, mask=real[:, None])
                tl.store(partial_lses + slot, top + tl.log2(total), mask=real)
            top = tl.full([ROWS], float("-inf"), tl.float32)
            total = tl.zeros([ROWS], tl.float32)
            mixed = tl.zeros([ROWS, DIM], tl.float32)
            whole = True

        goes_on = step + 1 < count
        tile += 1
        if ends:
            tile = 0
            head += 1
            if head == KV_HEADS:
                head = 0
                place += 1
                sequence = tl.load(live + place * 4)
                length = tl.load(live + place * 4 + 1)
                tiles = tl.load(live + place * 4 + 2)
                dropped = tl.load(live + place * 4 + 3)
        number = text_tile(tile, length, tiles, TILE, WINDOW, FIRST_TILES) // (PAGE // TILE)
        if WINDOW:
            number -= tl.where(number >= FIRST_PAGES, dropped, 0)
        page = tl.load(table + sequence * table_stride + number, mask=goes_on, other=0)
        if ends & goes_on:
            at = sequence * (QUERIES * HEADS) + head * GROUP + lanes
            q, unit = _query(query + at[:, None] * DIM + dims, real, factor, data, NARROW)
