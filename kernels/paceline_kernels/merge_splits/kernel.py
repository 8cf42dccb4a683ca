"""Merges partials by borders, not by heads: a border between two programs splits at most one head.

So the grid is that of the work list, whatever the batch. The first border inside a head merges all of its parts, which
it locates by arithmetic. The same programs clear places of the batch without a token.
"""

import triton
import triton.language as tl

LOG2E = tl.constexpr(1.4426950408889634)


@triton.jit(do_not_specialize=["places", "room"])
def merge_splits_kernel(
    partials,  # [2 * programs, room, DIM]
    partial_lses,  # [2 * programs, room], base 2
    entries,
    lengths,
    sinks,  # [HEADS] if SINKS
    out,  # [places, QUERIES, HEADS, DIM]
    lse,  # [places, QUERIES, HEADS] if LSE
    places,
    room,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    QUERIES: tl.constexpr,
    DIM: tl.constexpr,
    SINKS: tl.constexpr,
    LSE: tl.constexpr,
    CHUNK: tl.constexpr,
):
    GROUP: tl.constexpr = HEADS // KV_HEADS
    border = tl.program_id(0)
    dims = tl.arange(0, DIM)
    share = tl.load(entries)
    entry = entries + border * 8
    count = tl.load(entry)
    head = tl.load(entry + 1) % KV_HEADS
    tile = tl.load(entry + 2)
    sequence = tl.load(entry + 4)
    tiles = tl.load(entry + 6)
    if (count > 0) & (tile > 0) & (tile <= share):
        last = (border * share - tile + tiles - 1) // share
        for row in range(tl.program_id(1), GROUP * QUERIES, tl.num_programs(1)):
            top = float("-inf")
            total = 0.0
            mixed = tl.zeros([DIM], tl.float32)
            for begin in range(border - 1, last + 1, CHUNK):
                program = begin + tl.arange(0, CHUNK)
                # the program before the border began the head, later ones continued it
                slot = (2 * program + (program < border).to(tl.int32)) * room + row
                part = tl.load(partial_lses + slot, mask=program <= last, other=float("-inf"))
                values = tl.load(partials + slot[:, None] * DIM + dims, mask=(program <= last)[:, None], other=0.0)
                higher = tl.maximum(top, tl.max(part, 0))
                base = tl.where(higher == float("-inf"), 0.0, higher)
                weights = tl.exp2(part - base)
                fade = tl.exp2(top - base)
                total = total * fade + tl.sum(weights, 0)
                mixed = mixed * fade + tl.sum(weights[:, None] * values, 0)
                top = higher
            query_head = head * GROUP + row % GROUP
            if SINKS:
                total += tl.where(total > 0, tl.exp2(tl.load(sinks + query_head) * LOG2E - top), 0.0)
            at = (sequence * QUERIES + row // GROUP) * HEADS + query_head
            tl.store(out + at * DIM + dims, mixed / tl.where(total > 0, total, 1.0))
            if LSE:
                tl.store(lse + at, (top + tl.log2(total)) / LOG2E)

    for place in range(border, places, tl.num_programs(0)):
        if tl.load(lengths + place) == 0:
            for row in range(tl.program_id(1), QUERIES * HEADS, tl.num_programs(1)):
                at = place * (QUERIES * HEADS) + row
                tl.store(out + at * DIM + dims, tl.zeros([DIM], tl.float32))
                if LSE:
                    tl.store(lse + at, float("-inf"))
