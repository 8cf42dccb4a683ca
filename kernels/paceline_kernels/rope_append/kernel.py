"""A program takes some heads of one token, all queries, all keys or all values, as two halves of [heads, head_dim / 2].

The halves exchange nothing but products, so a thread holds both parts of a pair and the rotation needs no shuffle.
Programs of a token follow each other, so that reads at the same time are adjacent.
"""

import triton
import triton.language as tl


@triton.jit(do_not_specialize_on_alignment=["slots"])  # part of a buffer: one compilation for any alignment
def rope_append_kernel(
    qkv,
    cos,
    sin,
    slots,
    data,
    scales,
    query_norm,
    key_norm,
    out,
    eps,
    least,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    PAGE_TOKENS: tl.constexpr,
    BLOCK: tl.constexpr,  # heads of a program that has queries
    KV_BLOCK: tl.constexpr,  # of one that has keys or values
    NORMS: tl.constexpr,
    LIMIT: tl.constexpr,  # of narrow pages, 0 for others
    ROUNDS: tl.constexpr,  # narrow pages hold integers
):
    query_parts: tl.constexpr = (HEADS + BLOCK - 1) // BLOCK
    key_parts: tl.constexpr = (KV_HEADS + KV_BLOCK - 1) // KV_BLOCK
    half: tl.constexpr = HEAD_DIM // 2
    parts: tl.constexpr = query_parts + 2 * key_parts
    token = (tl.program_id(0) // parts).to(tl.int64)
    part = tl.program_id(0) % parts
    row = qkv + token * ((HEADS + 2 * KV_HEADS) * HEAD_DIM)
    columns = tl.arange(0, half)[None, :]
    turn = token * half + columns
    if part < query_parts:
        heads = (part * BLOCK + tl.arange(0, BLOCK))[:, None]
        inside = heads < HEADS
        places = heads * HEAD_DIM + columns
        first, second = _halves(row + places, inside, half)
        if NORMS:
            first, second = _normed(first, second, query_norm + columns, eps, HEAD_DIM)
        first, second = _rotated(first, second, tl.load(cos + turn), tl.load(sin + turn))
        target = out + token * (HEADS * HEAD_DIM) + places
        tl.store(target, first.to(out.dtype.element_ty), inside)
        tl.store(target + half, second.to(out.dtype.element_ty), inside)
    else:
        slot = tl.load(slots + token)
        if slot >= 0:
            kind = (part - query_parts) // key_parts  # 0: keys, 1: values
            heads = ((part - query_parts) % key_parts * KV_BLOCK + tl.arange(0, KV_BLOCK))[:, None]
            inside = heads < KV_HEADS
            first, second = _halves(row + (HEADS + kind * KV_HEADS + heads) * HEAD_DIM + columns, inside, half)
            if kind == 0:
                if NORMS:
                    first, second = _normed(first, second, key_norm + columns, eps, HEAD_DIM)
                first, second = _rotated(first, second, tl.load(cos + turn), tl.load(sin + turn))
            place = ((slot // PAGE_TOKENS * KV_HEADS + heads) * 2 + kind) * PAGE_TOKENS + slot % PAGE_TOKENS
            if LIMIT > 0:
                most = tl.maximum(tl.max(tl.abs(first), 1), tl.max(tl.abs(second), 1))[:, None]
                most = tl.maximum(most, least)
                tl.store(scales + place, most / LIMIT, inside)
                first, second = _narrow(first, LIMIT / most, ROUNDS), _narrow(second, LIMIT / most, ROUNDS)
            target = data + place * HEAD_DIM + columns
            tl.store(target, first.to(data.dtype.element_ty), inside)
            tl.store(target + half, second.to(data.dtype.element_ty), inside)


@triton.jit
def _halves(source, inside, half: tl.constexpr):
    first = tl.load(source, inside, other=0.0).to(tl.float32)
    return first, tl.load(source + half, inside, other=0.0).to(tl.float32)


@triton.jit
def _normed(first, second, weight, eps, HEAD_DIM: tl.constexpr):
    scale = tl.rsqrt((tl.sum(first * first, 1) + tl.sum(second * second, 1))[:, None] / HEAD_DIM + eps)
    return first * scale * tl.load(weight), second * scale * tl.load(weight + HEAD_DIM // 2)


@triton.jit
def _rotated(first, second, cos, sin):
    return first * cos - second * sin, second * cos + first * sin


@triton.jit
def _narrow(x, factor, ROUNDS: tl.constexpr):
    x *= factor
    # 1.5 * 2**23: above it a float32 has no fraction, so the sum rounds to the nearest integer, ties to even
    return (x + 12582912.0) - 12582912.0 if ROUNDS else x
