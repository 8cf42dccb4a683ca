"""Requests whose next tokens the device and the engine's numpy sampler draw side by side."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from tests.engine.shadow import request

from paceline_kernels.sample.state import Asked, Drawn, State
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
    stops: Sequence[int] = field(default=())

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
        fields = {**asdict(self.asked), "stop_ids": self.stops, "least": len(self.prompt) + self.minimum}
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
    for row, sample in enumerate(samples):
        best = float(drawn.best[row])
        assert math.isfinite(best) == (sample.error == ""), row
        if sample.error:
            assert (str(best) in sample.error) or (best == -math.inf and "No token" in sample.error), row
            assert bool(drawn.stopped[row])
            continue
        assert int(drawn.tokens[row]) == sample.token, row
        if sample.logprobs is not None:
            chosen, top = sample.logprobs
            assert abs(float(drawn.logprob[row]) - chosen) <= 1e-5 * max(abs(chosen), 1)
            assert drawn.top_ids[row, : len(top)].tolist() == [token for token, _ in top]
            np.testing.assert_allclose(drawn.top_logprobs[row, : len(top)].cpu(), [v for _, v in top], 1e-5, 1e-5)
