"""`python -m tests.engine.gpu_compiles`: kernels compiled by a warm-up, and by steps after it, without a GPU.

A driver stands in for one, tensors have sizes and no content, and each step is laid out and launched as on a GPU. The
process must not interpret kernels.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random

import torch
from benchmarks.kernels.standin import stand_in
from tests.engine.shadow import request
from torch import Tensor

from paceline_planner.shapes import ModelShape
from paceline_workers.engine.gpu.cache import GpuCache
from paceline_workers.engine.gpu.decoder import GpuDecoder
from paceline_workers.engine.gpu.device import Host
from paceline_workers.engine.gpu.steps import Steps
from paceline_workers.engine.memory.sight import Sight
from paceline_workers.engine.model.config import ModelConfig
from paceline_workers.engine.model.decoder import Decoder, Layer, Norm
from paceline_workers.engine.model.generation import Generation
from paceline_workers.engine.model.products import Linear
from paceline_workers.engine.model.rope import Rope
from paceline_workers.engine.scheduling import Chunk, Limits, Plan

PAGE = 64
SHAPE = ModelShape("small", 1, 128, 4, 2, 64, 256, 4096, 4096)
LIMITS = Limits(max_model_len=4096, vocab_size=4096, page_tokens=PAGE, max_seqs=40, step_tokens=1024)


@dataclass(frozen=True)
class Meta(Host):
    """Tensors without content, on as many multiprocessors as an H100 has."""

    where: torch.device = field(default_factory=lambda: torch.device("meta"))
    processors: int = 132


def decoder() -> GpuDecoder:
    """Of bf16 weights."""

    def made(*size: int) -> Tensor:
        return torch.empty(size, dtype=torch.bfloat16, device="meta")

    def norm(size: int) -> Norm:
        return Norm(torch.empty(size, device="meta"), 1e-5, torch.bfloat16)

    wide, heads = SHAPE.hidden, SHAPE.heads * SHAPE.head_dim
    layer = Layer(
        attention_norm=norm(wide),
        qkv=Linear(made(heads + 2 * SHAPE.kv_heads * SHAPE.head_dim, wide)),
        out=Linear(made(wide, heads)),
        mlp_norm=norm(wide),
        gate_up=Linear(made(2 * SHAPE.ffn, wide)),
        down=Linear(made(wide, SHAPE.ffn)),
        query_norm=None,
        key_norm=None,
    )
    rope = Rope.of("default", SHAPE.head_dim, 1e4, SHAPE.max_context, {})
    config = ModelConfig(SHAPE, 1e-5, rope, (Sight(),), Generation())
    matrix = made(SHAPE.vocab, wide)
    return GpuDecoder(Decoder(config, matrix, (layer,), norm(wide), Linear(matrix)), Meta(), LIMITS.max_model_len)


def mixed(chance: Random) -> Plan:
    """Some single tokens, and up to three longer chunks, anywhere in their texts."""
    counts = [1] * chance.randrange(20) + [chance.randrange(2, 300) for _ in range(chance.randrange(4))]
    return Plan(tuple(_chunk(f"r{place}", count, chance) for place, count in enumerate(counts or [1])))


def _chunk(name: str, count: int, chance: Random) -> Chunk:
    start = chance.randrange(3000)
    entry = request(name, [1] * (start + count))
    entry.pages = [0] * -(-(start + count) // PAGE)
    return Chunk(entry, start, count, True)


@torch.inference_mode()
def main() -> None:
    """Kernels' names, in the order in which they were compiled."""
    device = stand_in()
    model = decoder()
    steps = Steps(model, GpuCache(SHAPE, 64, PAGE, device=model.device), LIMITS)

    def run(plans: Sequence[Plan]) -> list[str]:
        begin = len(device.loaded)
        for plan in plans:
            steps.run(*steps.stage(plan))
        return [loaded.kernel for loaded in device.loaded[begin:]]

    chance = Random(3)
    warm, later = run(list(steps.rehearsals())), run([mixed(chance) for _ in range(40)])
    sys.stdout.write(json.dumps({"warm": warm, "later": later}))


if __name__ == "__main__":
    main()
