"""Samples the next tokens and scores prompts on the device, and reads the results on the host.

A request gets a slot in the sampler's state with the first step that draws for it, and keeps it while it runs; after a
preemption it joins again, because its last draw may have been discarded. For grammars, lists of allowed tokens or bad
words, beams, embeddings and requests with more biases or stop ids than fit, the host draws from the same logits: such
rows have no slot.
Logits of a prompt are held for SCORED rows at a time, in float32; the host reads a few numbers for each row. Known
hole: of equally likely candidates at the border of the last place, any one may be reported.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import torch
from torch import Tensor

from paceline_kernels.sample.launch import Scratch
from paceline_kernels.sample.state import SampleOutput, SamplerState, SamplingParams, fits
from paceline_workers.engine.backends.gpu.decoder import Kernels
from paceline_workers.engine.backends.gpu.device import Device
from paceline_workers.engine.backends.gpu.step_inputs import NO_ROW
from paceline_workers.engine.sampling.sample import fault
from paceline_workers.engine.scheduling import Request, SampledToken
from paceline_workers.engine.scheduling.request import RequestStatus as Stage
from paceline_workers.engine.scheduling.search import TokenLogprobs
from paceline_workers.messages import PromptLogprob


class DeviceSampler:
    """For at most `most` requests at once.

    `drawn`: the last step's draws, on the device, and a last row that no step draws: token 0, not stopped. Rows that
    take no token from another row refer to that one, with index -1.
    """

    def __init__(self, most: int, vocab: int, device: Device, kernels: Kernels) -> None:
        where = device.where
        self.drawn = SampleOutput.empty(most + 1, where)
        self._state = SamplerState.empty(most, vocab, where)
        self._scratch = Scratch.empty(most, vocab, where)
        self._kernels = kernels
        self._free = list(range(most))
        self._places: dict[Request, tuple[int, int]] = {}

    def renew(self) -> None:
        """Release the slots of requests that no longer run or were preempted meanwhile."""
        runs, places = Stage.RUNNING, self._places
        gone = [
            request for request, (_, life) in places.items() if request.state is not runs or request.preemptions != life
        ]
        self._free += [places.pop(request)[0] for request in gone]

    def sample_slot(self, request: Request) -> int:
        """Its slot in the state, NO_ROW if the host must draw for it."""
        if known := self._places.get(request):
            return known[0]
        asked = wanted(request)
        if asked is None:
            return NO_ROW
        place = self._free.pop()
        prompt_len = request.prompt_len
        self._state.join(place, asked, request.tokens[:prompt_len], request.tokens[prompt_len:])
        self._places[request] = (place, request.preemptions)
        return place

    def draw(self, logits: Tensor, sample_slots: Tensor, counts: Tensor) -> None:
        """Draw one token for each row, into the first rows of `drawn`."""
        self._kernels.sample(logits, sample_slots, counts, self._state, self._scratch, _first(self.drawn, len(logits)))


def _first(drawn: SampleOutput, rows: int) -> SampleOutput:
    parts = {entry.name: getattr(drawn, entry.name)[:rows] for entry in fields(SampleOutput) if entry.name != "packed"}
    return SampleOutput(packed=drawn.packed, **parts)


def wanted(request: Request) -> SamplingParams | None:
    """The parameters with which the device draws for it, None if it cannot."""
    sampling = request.sampling
    if request.embed or request.beams is not None or sampling.grammar or sampling.allowed or sampling.bad_words:
        return None
    asked = SamplingParams(
        temperature=sampling.temperature,
        min_p=sampling.min_p,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        repetition=sampling.repetition,
        frequency=sampling.frequency,
        presence=sampling.presence,
        seed=sampling.seed,
        choice=request.choice,
        logprobs=sampling.logprobs,
        bias=sampling.bias,
        stop_ids=request.stop_ids,
        least=request.prompt_len + request.min_tokens,
        end=request.end,
    )
    return asked if fits(asked) else None


class SampleReader:
    """Reads the draws, once they have been copied to the host."""

    def __init__(self, drawn: SampleOutput) -> None:
        self._tokens, self._best = drawn.tokens.tolist(), drawn.best.tolist()
        self._drawn = drawn

    def sample(self, row: int, request: Request) -> SampledToken:
        """The sample of a row's request."""
        if words := fault(self._best[row]):
            return SampledToken(self._tokens[row], error=words)
        logprobs = self._logprobs(row, request.sampling.logprobs) if request.sampling.logprobs >= 0 else None
        return SampledToken(self._tokens[row], logprobs)

    def _logprobs(self, row: int, top: int) -> TokenLogprobs:
        drawn = self._drawn
        ids, values = drawn.top_ids[row, :top].tolist(), drawn.top_logprobs[row, :top].tolist()
        best = [(token, value) for token, value in zip(ids, values, strict=True) if token >= 0]
        return float(drawn.logprob[row]), best


SCORED = 64


@dataclass(frozen=True, slots=True)
class ScoredPrompt:
    """A chunk whose rows from `row` on score the tokens `following` them, with a number of candidates."""

    row: int
    following: list[int]
    top: int


@dataclass(frozen=True, slots=True)
class ScoreRows:
    """All such chunks of a step, on the device: their rows, the tokens that follow, the most candidates of any."""

    rows: Tensor
    following: Tensor
    top: int

    @classmethod
    def of(cls, chunks: Sequence[ScoredPrompt], device: Device) -> "ScoreRows":
        """Copied to the device without blocking the host."""
        rows = [chunk.row + place for chunk in chunks for place in range(len(chunk.following))]
        following = [token for chunk in chunks for token in chunk.following]
        host = device.pinned((2, len(rows)), torch.int64)
        host.copy_(torch.tensor([rows, following]))
        sent = host.to(device.where, non_blocking=True)
        return cls(sent[0], sent[1], max(chunk.top for chunk in chunks))


@dataclass(frozen=True, slots=True)
class PromptScorer:
    """By row: log-probability and rank of the token that follows, ids and log-probabilities of the likeliest ones."""

    own: Tensor
    rank: Tensor
    ids: Tensor
    values: Tensor

    @classmethod
    def of(cls, rows: ScoreRows, logits: Callable[[slice], Tensor]) -> "PromptScorer":
        """`logits` returns those of some of the rows."""
        parts = [
            _scores(logits(slice(first, first + SCORED)), rows.following[first : first + SCORED], rows.top)
            for first in range(0, len(rows.rows), SCORED)
        ]
        own, rank, ids, values = (torch.cat(list(each)) for each in zip(*parts, strict=True))
        return cls(own, rank, ids, values)

    def copied(self, device: Device) -> "PromptScorer":
        """A copy on the host, valid once the compute stream has reached this point."""
        return PromptScorer(
            *(
                device.pinned(part.shape, part.dtype).copy_(part, non_blocking=True)
                for part in (self.own, self.rank, self.ids, self.values)
            )
        )

    def read(self, chunks: Sequence[ScoredPrompt]) -> list[list[PromptLogprob]]:
        """The requested scores of each chunk, best first; ties in order of id."""
        entries = zip(self.own.tolist(), self.rank.tolist(), self.ids.tolist(), self.values.tolist(), strict=True)
        return [[_entry(*next(entries), chunk.top) for _ in chunk.following] for chunk in chunks]


def _scores(logits: Tensor, following: Tensor, top: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    logits = logits.float()
    total = logits.logsumexp(-1, keepdim=True)
    own = logits.gather(1, following[:, None])
    rank = (logits > own).sum(-1) + 1
    values, ids = logits.topk(min(top, logits.shape[1]))
    return (own - total)[:, 0], rank, ids, values - total


def _entry(own: float, rank: int, ids: list[int], values: list[float], top: int) -> PromptLogprob:
    best = sorted(zip(ids, values, strict=True), key=lambda one: (-one[1], one[0]))
    return own, rank, best[:top]
