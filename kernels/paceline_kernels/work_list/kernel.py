"""Makes the work list on the device: each program counts all tiles itself, which is fast for a thousand lengths.

So there is one launch, and no program waits for another. Places of a batch are summed in a block. A program starts at
the place whose number is how many places end their work before the program's begins, so empty places drop out.
"""

import triton
import triton.language as tl


@triton.jit
def visible_tiles(length, QUERIES: tl.constexpr, TILE: tl.constexpr, WINDOW: tl.constexpr, FIRST_TILES: tl.constexpr):
    """As in the reference; WINDOW 0: all tokens before."""
    tiles = tl.cdiv(length, TILE)
    if WINDOW:
        head = tl.minimum(tiles, FIRST_TILES)
        begin = tl.maximum(tl.maximum(length - QUERIES, 0) - WINDOW + 1, 0) // TILE
        tiles += head - tl.maximum(begin, head)
    return tiles


@triton.jit
def text_tile(tile, length, tiles, TILE: tl.constexpr, WINDOW: tl.constexpr, FIRST_TILES: tl.constexpr):
    """The number in the text of a visible tile: those after the head follow a gap."""
    if WINDOW:
        tile += tl.where(tile >= FIRST_TILES, tl.cdiv(length, TILE) - tiles, 0)
    return tile


@triton.jit(do_not_specialize=["places", "table_stride"])
def plan_kernel(
    lengths,  # [places]
    dropped,  # [places]
    table,  # [places, table_stride]
    entries,  # [PROGRAMS, 8]
    live,  # [places, 4]
    places,
    table_stride,
    PROGRAMS: tl.constexpr,
    LEAST: tl.constexpr,
    KV_HEADS: tl.constexpr,
    QUERIES: tl.constexpr,
    PAGE: tl.constexpr,
    TILE: tl.constexpr,
    WINDOW: tl.constexpr,
    FIRST: tl.constexpr,
    PLACES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    FIRST_TILES: tl.constexpr = (FIRST + TILE - 1) // TILE
    FIRST_PAGES: tl.constexpr = (FIRST + PAGE - 1) // PAGE
    place = tl.arange(0, PLACES)
    length = tl.load(lengths + place, mask=place < places, other=0)
    tiles = visible_tiles(length, QUERIES, TILE, WINDOW, FIRST_TILES)
    seen = (tiles > 0).to(tl.int32)
    ends = tl.cumsum(tiles * KV_HEADS, 0)
    total = tl.sum(tiles * KV_HEADS, 0)
    share = tl.maximum(tl.cdiv(total, PROGRAMS), LEAST)

    if tl.program_id(0) == 0:
        row = live + (tl.cumsum(seen, 0) - 1) * 4
        gone = tl.load(dropped + place, mask=place < places, other=0)
        tl.store(row, place, mask=seen > 0)
        tl.store(row + 1, length, mask=seen > 0)
        tl.store(row + 2, tiles, mask=seen > 0)
        tl.store(row + 3, gone, mask=seen > 0)

    program = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    begin = program * share
    busy = (program < PROGRAMS) & (begin < total)
    before = ends[None, :] <= begin[:, None]
    sequence = tl.sum(before.to(tl.int32), 1)
    start = tl.max(tl.where(before, ends[None, :], 0), 1)
    alive = tl.sum(tl.where(before, seen[None, :], 0), 1)
    length = tl.load(lengths + sequence, mask=busy, other=1)
    gone = tl.load(dropped + sequence, mask=busy, other=0)
    tiles = visible_tiles(length, QUERIES, TILE, WINDOW, FIRST_TILES)
    tile = (begin - start) % tiles
    segment = alive * KV_HEADS + (begin - start) // tiles
    number = text_tile(tile, length, tiles, TILE, WINDOW, FIRST_TILES) // (PAGE // TILE)
    number -= tl.where(number >= FIRST_PAGES, gone, 0)
    page = tl.load(table + sequence * table_stride + number, mask=busy, other=0)

    entry = entries + program * 8
    mine = program < PROGRAMS
    tl.store(entry, tl.where(busy, tl.minimum(share, total - begin), 0), mask=mine)
    tl.store(entry + 1, segment, mask=busy)
    tl.store(entry + 2, tile, mask=busy)
    tl.store(entry + 3, page, mask=busy)
    # An idle program reads a query too: the first one exists, one of an earlier, larger batch may not.
    tl.store(entry + 4, tl.where(busy, sequence, 0), mask=mine)
    tl.store(entry + 5, length, mask=busy)
    tl.store(entry + 6, tiles, mask=busy)
    tl.store(entry + 7, gone, mask=busy)
