"""The ablation: decode attention over fixed segments, launched as vLLM's unified Triton kernel is.

Tiles of 16 tokens, each token's page looked up by itself, 16 segments of every sequence whatever its length (or one,
where sequences and heads alone fill the GPU), no numbers of warps and stages given. Same pages, same mathematics.
"""

import triton
import triton.language as tl


@triton.jit
def segments_kernel(
    query,
    data,
    table,
    lengths,
    out,
    partials,
    sums,
    scale,
    table_stride,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    TILE: tl.constexpr,
    SEGMENTS: tl.constexpr,
):
    sequence, kv_head, segment = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(lengths + sequence)
    share = tl.cdiv(tl.cdiv(length, TILE), SEGMENTS)
    GROUP: tl.constexpr = HEADS // KV_HEADS
    row, dims = tl.arange(0, ROWS), tl.arange(0, HEAD_DIM)
    heads = sequence * HEADS + kv_head * GROUP + row
    inside = (row < GROUP)[:, None]
    queries = tl.load(query + heads[:, None] * HEAD_DIM + dims, mask=inside, other=0.0)
    best = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    found = tl.zeros([ROWS, HEAD_DIM], tl.float32)
    for tile in range(segment * share, min((segment + 1) * share, tl.cdiv(length, TILE))):
        tokens = tile * TILE + tl.arange(0, TILE)
        seen = tokens < length
        page = tl.load(table + sequence * table_stride + tokens // PAGE_TOKENS, mask=seen, other=0).to(tl.int64)
        place = ((page * KV_HEADS + kv_head) * 2 * PAGE_TOKENS + tokens % PAGE_TOKENS) * HEAD_DIM
        keys = tl.load(data + place[None, :] + dims[:, None], mask=seen[None, :], other=0.0)
        values = tl.load(data + place[:, None] + PAGE_TOKENS * HEAD_DIM + dims[None, :], mask=seen[:, None], other=0.0)
        scores = tl.where(seen[None, :], tl.dot(queries, keys, input_precision="ieee") * scale, float("-inf"))
        top = tl.maximum(best, tl.max(scores, 1))
        weights = tl.exp2(scores - top[:, None])
        kept = tl.exp2(best - top)
        total = total * kept + tl.sum(weights, 1)
        found = tl.dot(weights.to(values.dtype), values, found * kept[:, None], input_precision="ieee")
        best = top
    if SEGMENTS == 1:
        tl.store(out + heads[:, None] * HEAD_DIM + dims, (found / total[:, None]).to(out.dtype.element_ty), mask=inside)
    else:
        part = heads * SEGMENTS + segment
        tl.store(partials + part[:, None] * HEAD_DIM + dims, found, mask=inside)
        tl.store(sums + part * 2, best, mask=row < GROUP)
        tl.store(sums + part * 2 + 1, total, mask=row < GROUP)


@triton.jit
def reduce_kernel(partials, sums, out, HEAD_DIM: tl.constexpr, SEGMENTS: tl.constexpr):
    head = tl.program_id(0)
    segments, dims = tl.arange(0, SEGMENTS), tl.arange(0, HEAD_DIM)
    best = tl.load(sums + (head * SEGMENTS + segments) * 2)
    total = tl.load(sums + (head * SEGMENTS + segments) * 2 + 1)
    kept = tl.exp2(best - tl.max(best, 0))
    found = tl.load(partials + (head * SEGMENTS + segments)[:, None] * HEAD_DIM + dims)
    mixed = tl.sum(found * kept[:, None], 0) / tl.sum(total * kept, 0)
    tl.store(out + head * HEAD_DIM + dims, mixed.to(out.dtype.element_ty))
