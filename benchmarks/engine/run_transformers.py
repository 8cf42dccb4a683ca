"""transformers as a peer: `generate` with its static batch, in float32 with torch's fused attention."""

from collections.abc import Sequence
from typing import Any

import torch
import transformers
from benchmarks.engine.lines import Generate, Run, Stamp, run, serve


def load(folder: str, threads: int) -> Generate:
    """The model, kept between jobs."""
    torch.set_num_threads(threads)
    maker = transformers.AutoModelForCausalLM
    model: Any = maker.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
    model.eval()

    @torch.inference_mode()
    def generate(prompts: Sequence[Sequence[int]], new: int) -> Run:
        ids = torch.tensor(prompts)
        stamps: list[Stamp] = []

        def stamp(ids: torch.Tensor, scores: object, **more: object) -> torch.Tensor:  # noqa: ARG001 - its signature
            stamps.append(Stamp.now())
            return torch.zeros(len(ids), dtype=torch.bool)

        begin = Stamp.now()
        options = {"do_sample": False, "max_new_tokens": new, "pad_token_id": 0}
        out = model.generate(ids, attention_mask=torch.ones_like(ids), stopping_criteria=[stamp], **options)
        return run(begin, stamps[0], stamps[-1], out[:, ids.shape[1] :].tolist())

    return generate


if __name__ == "__main__":
    serve(load)
