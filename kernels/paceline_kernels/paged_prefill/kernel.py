"""One program: a tile of tokens of one chunk, with `PACK` query heads of one kv head each, against all that they see.

Rows are ordered by token, then by head. A softmax may process its parts in any order, so the blocks that every row sees
whole come first, in a loop without masks, then those that need one (with first tokens, the window's edge, the diagonal,
the end of a context). In the reverse order, ptxas makes each `wgmma` product wait for the one before it. A sink is a
row's initial sum: e^sink, without a value. Scores are kept as logarithms to base 2, with the scale folded in.

A block is `TILE` tokens: part of a page, or whole pages. The number of a block's page is read one iteration ahead, so
that loading its keys does not wait for it. With `bulk`, a descriptor of the pool, the copy engine (TMA) loads the
blocks of the loop without masks; masked blocks are loaded by pointers, because only pointers can skip missing tokens.
Rows of a tile after its chunk's end repeat the chunk's last token and are dropped.
"""

import triton
import triton.language as tl

LOG2E: tl.constexpr = tl.constexpr(1.4426950408889634)
LN2: tl.constexpr = tl.constexpr(0.6931471805599453)


@triton.jit
def _pages(
    table, block, blocks, dropped, begin, end,
    PAGE: tl.constexpr, TILE: tl.constexpr, HEAD: tl.constexpr,
):  # fmt: skip
    """The page that holds block number `block` of `blocks`, or the pages of its tokens [TILE], from the table.

    Of a block of several pages, those before `begin`'s have no entry in the table unless they are in the head.
    """
    if TILE <= PAGE:
        number = block * TILE // PAGE
        known = block < blocks
    else:
        token = block * TILE + tl.arange(0, TILE)
        number = token // PAGE
        known = (token < tl.minimum(end, blocks * TILE)) & ((number >= begin // PAGE) | (number < HEAD))
    return tl.load(table + tl.where(number < HEAD, number, number - dropped), mask=known, other=0)


@triton.jit
def _edge(turn, heads, near, full, part):
    """The block of this iteration among those with a mask: [0, heads), [near, full), [part, ...)."""
    block = tl.where(turn < heads, turn, turn - heads + near)
    return tl.where(block >= full, block - full + part, block)


@triton.jit
def _part(pool, rows, known, DIM: tl.constexpr, MASKED: tl.constexpr):
    """Keys or values [TILE, DIM] by pointers."""
    place = pool + rows[:, None] * DIM + tl.arange(0, DIM)[None, :]
    return tl.load(place, mask=known[:, None], other=0.0) if MASKED else tl.load(place)


@triton.jit
def _attend(
    query, top, total, mixed, at, pool, bulk, scales, page, block, begin, end, kv_head, scale,
    KV: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr, TILE: tl.constexpr, HEAD: tl.constexpr,
    WINDOW: tl.constexpr, FIRST: tl.constexpr, CAP: tl.constexpr, NARROW: tl.constexpr,
    MASKED: tl.constexpr,
):  # fmt: skip
    """Add one block to an online softmax: `top` and `total` [rows], `mixed` [rows, DIM]; `at` [rows]: positions.

    A page's content after the last token may be anything, even NaN: its weights and its values are set to 0.
    """
    token = block * TILE + tl.arange(0, TILE)
    row = (page.to(tl.int64) * KV + kv_head) * (2 * PAGE)
    if TILE <= PAGE:
        row += block * TILE % PAGE
        rows, known = row + tl.arange(0, TILE), token < end
    else:
        rows = row + token % PAGE
        known = (token < end) & ((token // PAGE >= begin // PAGE) | (token // PAGE < HEAD))
    if bulk is not None:
        keys = bulk.load([row.to(tl.int32), 0]).to(query.dtype)
    else:
        keys = _part(pool, rows, known, DIM, MASKED).to(query.dtype)
    scores = tl.dot(query, keys.T, input_precision="tf32x3")
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
    if bulk is not None:
        values = bulk.load([row.to(tl.int32) + PAGE, 0]).to(query.dtype)
    else:
        values = _part(pool, rows + PAGE, known, DIM, MASKED).to(query.dtype)
    mixed = tl.dot(weights.to(query.dtype), values, mixed * shrunk[:, None], input_precision="tf32x3")
    return higher, total, mixed


@triton.jit
def _places(tiles, starts, tile, HEADS: tl.constexpr, PACK: tl.constexpr, ROWS: tl.constexpr):
    """A tile's sequence, its chunk's first row and number of tokens, the first and the last of them in the tile.

    Then for its rows [ROWS]: number and token, both after the first, and whether the row is in the chunk.
    Called again for the output, with loads that cannot be shared: kept addresses would take the loop's registers.
    """
    sequence, first = tl.load(tiles + 2 * tile, volatile=True), tl.load(tiles + 2 * tile + 1, volatile=True)
    begin, end = tl.load(starts + sequence), tl.load(starts + sequence + 1)
    slot = tl.arange(0, ROWS)
    last = tl.minimum(first + ROWS // PACK, end - begin) - 1
    token = tl.minimum(slot // PACK, last - first)
    valid = (slot // PACK <= last - first) & (slot < ROWS // PACK * PACK)
    return sequence, begin, end - begin, first, last, token * HEADS + slot % PACK, token, valid


# one compilation, wherever these begin in a buffer, and for any number of rows
@triton.jit(
    do_not_specialize=["table_stride"],
    do_not_specialize_on_alignment=["starts", "table", "lengths", "dropped", "tiles", "sinks", "lse"],
)
def prefill_kernel(
    query, starts, pool, bulk, scales, table, lengths, dropped, tiles, sinks, out, lse, scale, table_stride,
    HEADS: tl.constexpr, KV: tl.constexpr, PACK: tl.constexpr, PAGE: tl.constexpr, DIM: tl.constexpr,
    ROWS: tl.constexpr, TILE: tl.constexpr, WINDOW: tl.constexpr, FIRST: tl.constexpr, CAP: tl.constexpr,
    NARROW: tl.constexpr,
):  # fmt: skip
    """Grid: tiles * (HEADS / PACK) programs. `WINDOW` 0: no window."""
    SHARES: tl.constexpr = HEADS // PACK
    HEAD: tl.constexpr = (FIRST + PAGE - 1) // PAGE if WINDOW else 0
    tile, share = tl.program_id(0) // SHARES, tl.program_id(0) % SHARES
    kv_head = share * PACK // (HEADS // KV)
    sequence, begin, count, first, last, line, token, _ = _places(tiles, starts, tile, HEADS, PACK, ROWS)
    length, missing = tl.load(lengths + sequence), tl.load(dropped + sequence)
    table += sequence.to(tl.int64) * table_stride
    cells = line[:, None] * DIM + tl.arange(0, DIM)[None, :]
    origin = (begin + first).to(tl.int64) * HEADS + share * PACK
    rows = tl.load(query + origin * DIM + cells)

    low, high = length - count + first, length - count + last
    at = low + token
    # blocks: some row sees those from `near` to `end`, every row sees those from `full` to `part`
    visible_from = tl.maximum(low + 1 - WINDOW, 0) if WINDOW else 0
    near, end = visible_from // TILE, tl.cdiv(high + 1, TILE)
    full = tl.minimum(tl.cdiv(tl.maximum(high + 1 - WINDOW, 0), TILE), end) if WINDOW else 0
    part = tl.maximum((low + 1) // TILE, full)
    heads = tl.minimum((FIRST + TILE - 1) // TILE, near) if WINDOW else 0

    if sinks is not None:
        top, total = (
            tl.load(sinks + share * PACK + tl.arange(0, ROWS) % PACK) * LOG2E,
            tl.full((ROWS,), 1.0, tl.float32),
        )
    else:
        top, total = tl.full((ROWS,), float("-inf"), tl.float32), tl.zeros((ROWS,), tl.float32)
    mixed = tl.zeros((ROWS, DIM), tl.float32)
    ahead = _pages(table, full, part, missing, visible_from, length, PAGE, TILE, HEAD)
    for block in range(full, part):
        page = ahead
        ahead = _pages(table, block + 1, part, missing, visible_from, length, PAGE, TILE, HEAD)
        top, total, mixed = _attend(
            rows, top, total, mixed, at, pool, bulk, scales, page, block, visible_from, length, kv_head, scale,
            KV, PAGE, DIM, TILE, HEAD, WINDOW, FIRST, CAP, NARROW, False,
        )  # fmt: skip
    ahead = _pages(table, _edge(0, heads, near, full, part), end, missing, visible_from, length, PAGE, TILE, HEAD)
    for turn in range(heads + full - near + end - part):
        page, block, then = ahead, _edge(turn, heads, near, full, part), _edge(turn + 1, heads, near, full, part)
        ahead = _pages(table, then, end, missing, visible_from, length, PAGE, TILE, HEAD)
        top, total, mixed = _attend(
            rows, top, total, mixed, at, pool, None, scales, page, block, visible_from, length, kv_head, scale,
            KV, PAGE, DIM, TILE, HEAD, WINDOW, FIRST, CAP, NARROW, True,
        )  # fmt: skip

    _, begin, _, first, _, line, _, valid = _places(tiles, starts, tile, HEADS, PACK, ROWS)
    origin = (begin + first).to(tl.int64) * HEADS + share * PACK
    cells = line[:, None] * DIM + tl.arange(0, DIM)[None, :]
    divisor = tl.where(total == 0.0, 1.0, total)
    mixed = mixed / divisor[:, None]
    tl.store(out + origin * DIM + cells, mixed.to(out.dtype.element_ty), mask=valid[:, None])
    if lse is not None:
        logarithm = tl.where((total == 0.0) | (length == 0), float("-inf"), (top + tl.log2(divisor)) * LN2)
        tl.store(lse + origin + line, logarithm, mask=valid)
