"""Requests whose next tokens the kernels and their reference draw side by side."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from paceline_kernels.sample import reference
from paceline_kernels.sample.launch import Launch, Scratch, sample
from paceline_kernels.sample.state import NO_ID, SampleOutput, SamplerState, SamplingParams

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Case:
    """A request: its settings, its tokens, and the stop ids it must not produce before `minimum` of them."""

    asked: SamplingParams
    prompt: Sequence[int] = (1,)
    output: Sequence[int] = ()
    minimum: int = 0
    stops: Sequence[int] = ()
    end: int = NO_ID

    @property
    def position(self) -> int:
        """Tokens so far."""
        return len(self.prompt) + len(self.output)

    def join(self, state: SamplerState, slot: int) -> None:
        """The same for the device."""
        fields = {
            **asdict(self.asked),
            "stop_ids": self.stops,
            "least": len(self.prompt) + self.minimum,
            "end": self.end,
        }
        state.join(slot, SamplingParams(**fields), self.prompt, self.output)


def expected(logits: Rows, cases: Sequence[Case]) -> SampleOutput:
    """What the reference says."""
    cpu = torch.device("cpu")
    state, drawn = joined(cases, logits.shape[1], cpu), SampleOutput.empty(len(cases), cpu)
    return reference.sample(torch.from_numpy(logits), slots(cases, cpu), positions(cases, cpu), state, drawn)


def joined(cases: Sequence[Case], vocab: int, device: torch.device) -> SamplerState:
    """Slots of all cases, in reverse."""
    state = SamplerState.empty(len(cases), vocab, device)
    for place, case in enumerate(cases):
        case.join(state, len(cases) - 1 - place)
    return state


def slots(cases: Sequence[Case], device: torch.device) -> torch.Tensor:
    """Which slot each row belongs to."""
    return torch.arange(len(cases) - 1, -1, -1, dtype=torch.int32, device=device)


def positions(cases: Sequence[Case], device: torch.device) -> torch.Tensor:
    """How many tokens each has."""
    return torch.tensor([case.position for case in cases], dtype=torch.int32, device=device)


def assert_same(drawn: SampleOutput, theirs: SampleOutput, cases: Sequence[Case]) -> None:
    """The same tokens, ends and faults, and log-probabilities where they were asked for."""
    assert drawn.tokens.tolist() == theirs.tokens.tolist()
    assert drawn.stopped.tolist() == theirs.stopped.tolist()
    np.testing.assert_allclose(drawn.best.cpu(), theirs.best, rtol=1e-6)
    for row, case in enumerate(cases):
        fine = math.isfinite(theirs.best[row]) and math.isfinite(theirs.logprob[row])  # a barred id may have any logit
        if (told := case.asked.logprobs) >= 0 and fine:
            np.testing.assert_allclose(drawn.logprob[row].cpu(), theirs.logprob[row], 1e-5, 1e-5)
            assert drawn.top_ids[row, :told].tolist() == theirs.top_ids[row, :told].tolist()
            known = int((theirs.top_ids[row, :told] >= 0).sum())
            np.testing.assert_allclose(
                drawn.top_logprobs[row, :known].cpu(), theirs.top_logprobs[row, :known], 1e-5, 1e-5
            )


SMALL = Launch(chunk=64, warps=1, tile=128, tile_warps=4)
"""Makes several chunks and tiles of a vocabulary that the interpreter can bear."""


def sampled(logits: torch.Tensor, cases: Sequence[Case], launch: Launch = SMALL) -> tuple[SampleOutput, Scratch]:
    """What the kernels draw for requests that have just come, and what they have found on their way."""
    scratch = dirty(logits, launch)
    return on_device(logits, cases, joined(cases, logits.shape[1], logits.device), launch, scratch), scratch


def draw(logits: Rows, cases: Sequence[Case], device: torch.device, launch: Launch = SMALL) -> SampleOutput:
    """The same without the way."""
    return sampled(torch.from_numpy(logits).to(device), cases, launch)[0]


def on_device(
    logits: torch.Tensor,
    cases: Sequence[Case],
    state: SamplerState,
    launch: Launch = SMALL,
    scratch: Scratch | None = None,
) -> SampleOutput:
    """What the kernels draw for requests in their slots."""
    device, drawn = logits.device, SampleOutput.empty(len(cases), logits.device)
    drawn.packed.fill_(77)
    room = scratch or dirty(logits, launch)
    return sample(logits, slots(cases, device), positions(cases, device), state, room, drawn, launch=launch)


def dirty(logits: torch.Tensor, launch: Launch) -> Scratch:
    """Full of what an earlier step may have left."""
    scratch = Scratch.empty(logits.shape[0], logits.shape[1], logits.device, launch.chunk)
    for left in (scratch.cutoffs, scratch.candidates, scratch.tops, scratch.peaks, scratch.masses):
        left.fill_(math.nan)
    return scratch
