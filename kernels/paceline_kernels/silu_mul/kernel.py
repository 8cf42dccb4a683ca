"""A program takes one part of one row, of the gate and of its factor."""

import triton
import triton.language as tl


@triton.jit
def silu_mul_kernel(gate_up, out, FFN: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * FFN
    columns = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = columns < FFN
    gate = tl.load(gate_up + 2 * row + columns, inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + 2 * row + FFN + columns, inside, other=0.0).to(tl.float32)
    tl.store(out + row + columns, (gate * tl.sigmoid(gate) * up).to(out.dtype.element_ty), inside)
