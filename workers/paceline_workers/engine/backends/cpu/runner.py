"""Steps of a torch model: laid out by the host, computed one after the other, sampled by the host.

With a `pool` of one thread a step computes there while the host plans and lays out the next one; that thread sees
tensors alone, never a request. A token still being drawn is filled into the next step between the two.
"""

from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import islice

from torch import Tensor
from torch.nn.functional import normalize

from paceline_workers.engine.backends.base import StepResult
from paceline_workers.engine.model.attention import PagedCache
from paceline_workers.engine.model.batch import Batch
from paceline_workers.engine.model.decoder import Decoder
from paceline_workers.engine.sampling import Sampler, prompt_logprob
from paceline_workers.engine.scheduling import NO_TOKEN, Chunk, Request, SampledToken, StepPlan
from paceline_workers.messages import PromptLogprob

SCORED = 64
"""Rows of a prompt whose logits are held at a time."""


@dataclass(frozen=True, slots=True)
class _Computed:
    """A step's logits [drawn rows, vocabulary], its embeddings [embedded rows, hidden] of length 1, and its scores."""

    logits: Tensor
    vectors: Tensor
    scores: list[list[PromptLogprob]]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The tokens of a prompt that follow those computed, whose likelihood is wanted, each with so many candidates."""

    following: list[int]
    top: int


@dataclass(slots=True)
class _InFlightStep:
    """A step: its work, the requests that sample in their order, and rows whose token the step before it draws."""

    compute: Callable[[], _Computed]
    batch: Batch
    requests: list[Request]
    unknown: list[tuple[int, Request]]
    result: Future[_Computed] | None = None


class Runner:
    """At most two steps in flight: one that computes, one that waits for its tokens."""

    def __init__(self, decoder: Decoder, cache: PagedCache, sampler: Sampler, pool: Executor | None = None) -> None:
        self._decoder = decoder
        self._cache = cache
        self._sampler = sampler
        self._pool = pool
        self._flights: deque[_InFlightStep] = deque()

    def launch(self, plan: StepPlan, page_tokens: int) -> None:
        """Lay a step out; it begins at once, or when the one in flight is collected."""
        batch = self._decoder.lay_out(plan, page_tokens)
        requests = [chunk.request for chunk in plan.chunks if chunk.samples]
        prompts = [_prompt(chunk) for chunk in plan.chunks if chunk.scored]
        embedded = [row for row, request in enumerate(requests) if request.embed]

        def compute() -> _Computed:
            self._cache.copy(plan.copies)
            states = self._decoder.states(batch, self._cache)
            scores = self._scores(states[len(requests) :], prompts)
            return self._results(states[: len(requests)], embedded, scores)

        self._flights.append(_InFlightStep(compute, batch, requests, unknown(plan)))
        if len(self._flights) == 1:
            self._begin(self._flights[0])

    def collect(self) -> StepResult:
        """Samples and scores of the oldest step. If it raises, nothing is in flight any more."""
        flight, waiting = self._flights.popleft(), list(self._flights)
        self._flights.clear()
        computed = flight.compute() if flight.result is None else flight.result.result()
        samples = self._samples(computed, flight.requests)
        for following in waiting:
            self._fill(following, dict(zip(flight.requests, samples, strict=True)))
            self._begin(following)
            self._flights.append(following)
        return StepResult(samples, scores=computed.scores)

    def _scores(self, states: Tensor, prompts: list[_Prompt]) -> list[list[PromptLogprob]]:
        """Of the rows of each prompt in turn."""
        wanted = [(token, prompt.top) for prompt in prompts for token in prompt.following]
        scores: list[PromptLogprob] = []
        for first in range(0, len(wanted), SCORED):
            logits = self._decoder.logits(states[first : first + SCORED]).numpy()
            scores += [
                prompt_logprob(row, *one) for row, one in zip(logits, wanted[first : first + SCORED], strict=True)
            ]
        rest = iter(scores)
        return [list(islice(rest, len(prompt.following))) for prompt in prompts]

    def _results(self, states: Tensor, embedded: list[int], scores: list[list[PromptLogprob]]) -> _Computed:
        if not embedded:
            return _Computed(self._decoder.logits(states), states[:0], scores)
        drawn = [row for row in range(len(states)) if row not in embedded]
        logits = self._decoder.logits(states[drawn]) if drawn else states[:0]
        return _Computed(logits, normalize(states[embedded].float(), dim=-1), scores)

    def _samples(self, computed: _Computed, requests: list[Request]) -> list[SampledToken]:
        drawn = iter(self._sampler(computed.logits.numpy(), [request for request in requests if not request.embed]))
        vectors = iter(computed.vectors)
        return [
            SampledToken(NO_TOKEN, vector=next(vectors).numpy().tobytes()) if request.embed else next(drawn)
            for request in requests
        ]

    def _begin(self, flight: _InFlightStep) -> None:
        if self._pool:
            flight.result = self._pool.submit(flight.compute)

    def _fill(self, flight: _InFlightStep, drawn: dict[Request, SampledToken]) -> None:
        for row, request in flight.unknown:
            flight.batch.tokens[row] = drawn[request].token


def _prompt(chunk: Chunk) -> _Prompt:
    first = chunk.start + 1
    return _Prompt(chunk.request.tokens[first : first + chunk.scored], chunk.request.prompt_logprobs)


def unknown(plan: StepPlan) -> list[tuple[int, Request]]:
    """The last row of each chunk whose last token is still being drawn."""
    found, row = [], 0
    for chunk in plan.chunks:
        row += chunk.count
        if chunk.start + chunk.count > len(chunk.request.tokens):
            found.append((row - 1, chunk.request))
    return found
