"""Moves parts of pages as words of four bytes, whatever their type: a thread has 16 bytes of each of several loads.

A part is a stretch of one page of one layer. A side with an index looks locations up in it; on a side without one, the
location is the number itself.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize_on_alignment=["source_index", "target_index"])  # one compilation for any alignment
def move_kernel(
    source,
    target,
    source_index,
    target_index,
    source_layer,
    source_place,
    target_layer,
    target_place,
    STRIDE: tl.constexpr,  # of the indices: 2 for pairs, 1 for a list of pages
    INDEXED_SOURCE: tl.constexpr,
    INDEXED_TARGET: tl.constexpr,
    LAYERS: tl.constexpr,
    WORDS: tl.constexpr,  # of one page of one layer
    BLOCK: tl.constexpr,
):
    pieces: tl.constexpr = (WORDS + BLOCK - 1) // BLOCK
    program = tl.program_id(0)
    item = (program // (pieces * LAYERS)).to(tl.int64)
    layer = (program // pieces % LAYERS).to(tl.int64)
    words = program % pieces * BLOCK + tl.arange(0, BLOCK)
    origin = tl.load(source_index + item * STRIDE) if INDEXED_SOURCE else item
    place = tl.load(target_index + item * STRIDE) if INDEXED_TARGET else item
    inside = words < WORDS
    content = tl.load(source + layer * source_layer + origin * source_place + words, inside)
    tl.store(target + layer * target_layer + place * target_place + words, content, inside)
