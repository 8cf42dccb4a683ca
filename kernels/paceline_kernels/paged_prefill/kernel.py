"""One program: a tile of tokens of one chunk, with `PACK` query heads of one kv head each, against all that they see.

Rows lie token by token, heads of a token side by side. A softmax may take its parts in any order, so the blocks that
need a mask come first (those with first tokens, with the window's edge, with the diagonal, the last one of a context),
then all that every row sees whole, in a loop without masks. A sink is a row's first sum: e^sink, of no value.
Scores are kept as logarithms to base 2, the scale folded in.

A block is `TILE` tokens: part of a page, or whole pages. With `BULK` the pool is a tensor descriptor and blocks arrive
by the copy engine, else by pointers. Rows of a tile beyond its chunk repeat its last token and are dropped.
"""

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
LN2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def _rows(
    table, block, dropped, begin, end, kv_head,
    KV: tl.constexpr, PAGE: tl.constexpr, TILE: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """Where a block's keys stand in the pool, as rows of [pages, kv heads, 2, page_tokens], and which tokens are there.

    The first row, if all lie in one page, and rows [TILE]. Of a block of several pages, those before `begin`'s have no
    entry in the table unless they are of the head.
    """
    token = block * TILE + tl.arange(0, TILE)
    if TILE <= PAGE:
        number = block * TILE // PAGE
        page = tl.load(table + tl.where(number < HEAD, number, number - dropped)).to(tl.int64)
        first = (page * KV + kv_head) * (2 * PAGE) + block * TILE % PAGE
        rows, known = first + tl.arange(0, TILE), token < end
    else:
        number = token // PAGE
        known = (token < end) & ((number >= begin // PAGE) | (number < HEAD))
        page = tl.load(table + tl.where(number < HEAD, number, number - dropped), mask=known, other=0).to(tl.int64)
        rows = (page * KV + kv_head) * (2 * PAGE) + token % PAGE
        first = rows
    return first, rows, known


@triton.jit
def _part(pool, rows, known, DIM: tl.constexpr, MASKED: tl.constexpr):
    """Keys or values [TILE, DIM] by pointers."""
    place = pool + rows[:, None] * DIM + tl.arange(0, DIM)[None, :]
    return tl.load(place, mask=known[:, None], other=0.0) if MASKED else tl.load(place)


@triton.jit
def _attend(
    query, top, total, mixed, at, pool, scales, table, block, dropped, begin, end, kv_head, scale,
    KV: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr, HEAD: tl.constexpr,
    WINDOW: tl.constexpr, FIRST: tl.constexpr, CAP: tl.constexpr, BULK: tl.constexpr, NARROW: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """One block more of an online softmax: `top` and `total` [rows], `mixed` [rows, DIM]; `at` [rows]: positions.

    What lies in a page behind the last token may be anything, a NaN as well: its weights are 0, and so are its values.
    """
    token = block * TILE + tl.arange(0, TILE)
    row, rows, known = _rows(table, block, dropped, begin, end, kv_head, KV, PAGE, TILE, HEAD)
    if BULK:
        keys = pool.load([row.to(tl.int32), 0]).to(query.dtype)
    else:
        keys = _part(pool, rows, known, DIM, MASKED).to(query.dtype)
    scores = tl.dot(query, keys.T, input_precision="ieee")
    if NARROW:
        scores *= tl.load(scales + rows)[None, :]
    if CAP > 0:
        # cap * tanh(x / cap), by the exponential function
        scores = (CAP * LOG2E) * (1 - 2 / (tl.exp2(scores * (scale * (2 * LOG2E / CAP))) + 1))
        factor = 1.0
    else:
        factor = scale * LOG2E
    if MASKED:
        seen = token[None, :] <= at[:, None]
        if WINDOW:
            seen &= (token[None, :] > at[:, None] - WINDOW) | (token < FIRST)[None, :]
        scores = tl.where(seen, scores, float("-inf"))
    higher = tl.maximum(top, tl.max(scores, 1) * factor)
    base = tl.where(higher == float("-inf"), 0.0, higher) if MASKED else higher
    weights = tl.exp2(scores * factor - base[:, None])
    shrunk = tl.exp2(top - base)
    total = total * shrunk + tl.sum(weights, 1)
    if NARROW:
        weights *= tl.load(scales + rows + PAGE, mask=known, other=0.0)[None, :]
    if BULK:
        values = pool.load([row.to(tl.int32) + PAGE, 0]).to(query.dtype)
        if MASKED:
            values = tl.where(known[:, None], values, tl.zeros_like(values))
    else:
        values = _part(pool, rows + PAGE, known, DIM, MASKED).to(query.dtype)
    mixed = tl.dot(weights.to(query.dtype), values, mixed * shrunk[:, None], input_precision="ieee")
    return higher, total, mixed


@triton.jit
def prefill_kernel(
    query, starts, pool, scales, table, lengths, dropped, tiles, sinks, out, lse, scale, table_stride,
    HEADS: tl.constexpr, KV: tl.constexpr, PACK: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, WINDOW: tl.constexpr, FIRST: tl.constexpr, CAP: tl.constexpr,
    CAUSAL: tl.constexpr, BULK: tl.constexpr, NARROW: tl.constexpr,
):  # fmt: skip
    """Grid: tiles * (HEADS / PACK) programs. `WINDOW` 0: none."""
    SHARES: tl.constexpr = HEADS // PACK
    HEAD: tl.constexpr = (FIRST + PAGE - 1) // PAGE if WINDOW else 0
    tile, share = tl.program_id(0) // SHARES, tl.program_id(0) % SHARES
    sequence, first = tl.load(tiles + 2 * tile), tl.load(tiles + 2 * tile + 1)
    begin_row, length = tl.load(starts + sequence), tl.load(lengths + sequence)
    count = tl.load(starts + sequence + 1) - begin_row
    missing = tl.load(dropped + sequence)
    kv_head = share * PACK // (HEADS // KV)
    table += sequence.to(tl.int64) * table_stride

    slot = tl.arange(0, ROWS)
    last = tl.minimum(first + ROWS // PACK, count) - 1
    token = first + slot // PACK
    valid = (token <= last) & (slot < ROWS // PACK * PACK)
    token = tl.minimum(token, last)
    head = share * PACK + slot % PACK
    line = (begin_row + token).to(tl.int64) * HEADS + head
    cells = line[:, None] * DIM + tl.arange(0, DIM)[None, :]
    rows = tl.load(query + cells)

    if CAUSAL:
        at, low, high = length - count + token, length - count + first, length - count + last
    else:
        at, low, high = tl.full((ROWS,), 0, tl.int32) + length - 1, length - 1, length - 1
    # blocks: some row sees from `near` to `end`, every row all of those from `full` to `part`
    sight = tl.maximum(low + 1 - WINDOW, 0) if WINDOW else 0
    near, end = sight // TILE, tl.cdiv(high + 1, TILE)
    full = tl.minimum(tl.cdiv(tl.maximum(high + 1 - WINDOW, 0), TILE), end) if WINDOW else 0
    part = tl.maximum((low + 1) // TILE, full)
    heads = tl.minimum((FIRST + TILE - 1) // TILE, near) if WINDOW else 0

    if sinks is not None:
        top, total = tl.load(sinks + head) * LOG2E, tl.full((ROWS,), 1.0, tl.float32)
    else:
        top, total = tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, DIM), tl.float32)
    for turn in range(heads + full - near + end - part):
        block = tl.where(turn < heads, turn, turn - heads + near)
        block = tl.where(block >= full, block - full + part, block)
        top, total, mixed = _attend(
            rows, top, total, mixed, at, pool, scales, table, block, missing, sight, length, kv_head, scale,
            KV, PAGE, DIM, TILE, HEAD, WINDOW, FIRST, CAP, BULK, NARROW, True,
        )  # fmt: skip
    for block in range(full, part):
        top, total, mixed = _attend(
            rows, top, total, mixed, at, pool, scales, table, block, missing, sight, length, kv_head, scale,
            KV, PAGE, DIM, TILE, HEAD, WINDOW, FIRST, CAP, BULK, NARROW, False,
        )  # fmt: skip

    divisor = tl.where(total == 0.0, 1.0, total)
    mixed = mixed / divisor[:, None]
    tl.store(out + cells, mixed.to(out.dtype.element_ty), mask=valid[:, None])
    if lse is not None:
        logarithm = tl.where((total == 0.0) | (length == 0), float("-inf"), (top + tl.log2(divisor)) * LN2)
        tl.store(lse + line, logarithm, mask=valid)
