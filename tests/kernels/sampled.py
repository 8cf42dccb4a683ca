"""Requests whose next tokens the device and the engine's numpy sampler draw side by side."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from tests.engine.shadow import request

from paceline_kernels.sample.launch import Launch, Scratch, sample
from paceline_kernels.sample.state import NO_ID, Asked, Drawn, State
from paceline_workers.engine.sampling import sample as on_host
from paceline_workers.engine.scheduling import Request, Sample
from paceline_workers.messages import Sampling

Rows = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Case:
    """A request: its settings, its tokens, and the stop ids it must not produce before `minimum` of them."""

    asked: Asked
    prompt: Sequence[int] = (1,)
    output: Sequence[int] = ()
    minimum: int = 0
    stops: Sequence[int] = ()
    end: int = NO_ID

    @property
    def position(self) -> int:
        """Tokens so far."""
        return len(self.prompt) + len(self.output)

    def host(self) -> Request:
        """The same for the numpy sampler."""
        fields = asdict(self.asked)
        made = request("a", list(self.prompt), 99, stop_ids=frozenset(self.stops), min_tokens=self.minimum)
        made.tokens += self.output
        made.choice = fields.pop("choice")
        for name in ("stop_ids", "least", "end"):
            del fields[name]
        made.sampling = Sampling(**fields)
        return made

    def join(self, state: State, slot: int) -> None:
        """The same for the device."""
        fields = {
            **asdict(self.asked),
            "stop_ids": self.stops,
            "least": len(self.prompt) + self.minimum,
            "end": self.end,
        }
        state.join(slot, Asked(**fields), self.prompt, self.output)


def expected(logits: Rows, cases: Sequence[Case]) -> list[Sample]:
    """What the engine's numpy sampler says."""
    return on_host(logits, [case.host() for case in cases])


def joined(cases: Sequence[Case], vocab: int, device: torch.device) -> State:
    """Slots of all cases, in reverse."""
    state = State.empty(len(cases), vocab, device)
    for place, case in enumerate(cases):
        case.join(state, len(cases) - 1 - place)
    return state


def slots(cases: Sequence[Case], device: torch.device) -> torch.Tensor:
    """Which slot each row belongs to."""
    return torch.arange(len(cases) - 1, -1, -1, dtype=torch.int32, device=device)


def positions(cases: Sequence[Case], device: torch.device) -> torch.Tensor:
    """How many tokens each has."""
    return torch.tensor([case.position for case in cases], dtype=torch.int32, device=device)


def assert_same(drawn: Drawn, samples: Sequence[Sample]) -> None:
    """Tokens, faults and log-probabilities are those of the numpy sampler."""
    for row, told in enumerate(samples):
        best = float(drawn.best[row])
        assert math.isfinite(best) == (told.error == ""), row
        if told.error:
            assert (str(best) in told.error) or (best == -math.inf and "No token" in told.error), row
            assert bool(drawn.stopped[row])
            continue
        assert int(drawn.tokens[row]) == told.token, row
        if told.logprobs is not None:
            chosen, top = told.logprobs
            assert abs(float(drawn.logprob[row]) - chosen) <= 1e-5 * max(abs(chosen), 1)
            assert drawn.top_ids[row, : len(top)].tolist() == [token for token, _ in top]
            np.testing.assert_allclose(drawn.top_logprobs[row, : len(top)].cpu(), [v for _, v in top], 1e-5, 1e-5)


SMALL = Launch(chunk=64, warps=1, tile=128, tile_warps=4)
"""Makes several chunks and tiles of a vocabulary that the interpreter can bear."""


def sampled(logits: torch.Tensor, cases: Sequence[Case], launch: Launch = SMALL) -> tuple[Drawn, Scratch]:
    """What the kernels draw for requests that have just come, and what they have found on their way."""
    scratch = dirty(logits, launch)
    return on_device(logits, cases, joined(cases, logits.shape[1], logits.device), launch, scratch), scratch


def draw(logits: Rows, cases: Sequence[Case], device: torch.device, launch: Launch = SMALL) -> Drawn:
    """The same without the way."""
    return sampled(torch.from_numpy(logits).to(device), cases, launch)[0]


def on_device(
    logits: torch.Tensor,
    cases: Sequence[Case],
    state: State,
    launch: Launch = SMALL,
    scratch: Scratch | None = None,
) -> Drawn:
    """What the kernels draw for requests in their slots."""
    device, drawn = logits.device, Drawn.empty(len(cases), logits.device)
    drawn.packed.fill_(77)
    room = scratch or dirty(logits, launch)
    return sample(logits, slots(cases, device), positions(cases, device), state, room, drawn, launch=launch)


def dirty(logits: torch.Tensor, launch: Launch) -> Scratch:
    """Full of what an earlier step may have left."""
    scratch = Scratch.empty(logits.shape[0], logits.shape[1], logits.device, launch.chunk)
    for left in (scratch.floors, scratch.kept, scratch.tops, scratch.peaks, scratch.masses):
        left.fill_(math.nan)
    return scratch
