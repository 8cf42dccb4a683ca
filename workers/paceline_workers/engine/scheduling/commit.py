"""Applies the results of a step: new tokens, digests of the pages that became full, and the ends of requests.

If a request has ended or was preempted since the step was planned, its late token is dropped.
"""

from collections.abc import Sequence

from msgspec import structs

from paceline_workers.engine.scheduling import beams
from paceline_workers.engine.scheduling.admission import Forecast
from paceline_workers.engine.scheduling.plan import SampledToken, StepPlan
from paceline_workers.engine.scheduling.queues import RunningSet
from paceline_workers.engine.scheduling.request import Request, RequestStatus, lead
from paceline_workers.messages import PromptLogprob, Tokens

MAX_FRAME_TOKENS = 2048
"""The most prompt tokens whose log-probabilities share one frame."""


class StepCommit:
    """Turns samples into frames for the clients."""

    def __init__(self, requests: RunningSet, forecast: Forecast) -> None:
        self._memory = requests.memory
        self._requests = requests
        self._forecast = forecast

    def apply(
        self,
        plan: StepPlan,
        samples: Sequence[SampledToken],
        now: float,
        scores: Sequence[Sequence[PromptLogprob]] = (),
    ) -> list[Tokens]:
        """Takes one sample for each chunk that `samples`, in order, and `scores` for each that has `scored` tokens.

        Raises ValueError if the number of samples is wrong.
        """
        chunks, size, runs = plan.chunks, self._memory.page_tokens, RequestStatus.RUNNING
        if len(samples) != sum([chunk.samples for chunk in chunks]):
            raise ValueError(f"{len(samples)} samples are more or fewer than the chunks that sample")
        sampled, scored = iter(samples), iter(scores)
        events: list[Tokens] = []
        for chunk in chunks:
            request, start, count = chunk.request, chunk.start, chunk.count
            sample = next(sampled) if chunk.samples else None
            score = next(scored) if scores and chunk.scored else None
            if request.state is not runs:
                continue
            if (start + count) % size < count:  # the chunk has filled a page
                self._memory.publish(request, start, start + count)
            if score is not None:
                events += self._prompt_logprobs(request, start, score)
            if sample is None:
                continue
            if sample.error or sample.vector or request.beams is not None or not request.max_tokens:
                events += self._special(request, sample, now)
                continue
            token, tokens = sample.token, request.tokens
            tokens.append(token)
            request.pending -= 1
            length, logprobs = len(tokens), sample.logprobs
            if length >= request.end or token in request.stop_ids or sample.ended or request.first_token is None:
                events.append(self._first_or_last(request, sample, now))
                continue
            position = length - request.prompt_len - 1
            events.append(Tokens(request.id, position, [token], "", "", request.cached, [logprobs] if logprobs else []))
        return events

    def end(self, request: Request, finish: str, error: str, now: float) -> Tokens:
        """End a request without another token."""
        self._requests.remove(request)
        timing = request.timing(now)
        return Tokens(request.id, request.produced, [], finish, error, request.cached, timing=timing)

    def _first_or_last(self, request: Request, sample: SampledToken, now: float) -> Tokens:
        """The frame of its first token, or perhaps its last one."""
        if request.first_token is None:
            request.first_token = now
            if request.group:
                self._requests.admit_parked(request, now)
        produced = request.produced
        finish = "stop" if sample.ended else request.finish_reason(produced, request.end)
        timing = request.timing(now) if finish else None
        if finish:
            self._forecast.observe(request)
            self._requests.remove(request)
        logprobs = [sample.logprobs] if sample.logprobs else []
        return Tokens(request.id, produced - 1, [sample.token], finish, "", request.cached, logprobs, timing)

    def _special(self, request: Request, sample: SampledToken, now: float) -> list[Tokens]:
        """An error, a vector, a beam's candidates, or a prompt without output."""
        if sample.error:
            return [self.end(lead(request), "refused" if sample.refused else "error", sample.error, now)]
        if sample.vector:
            return [structs.replace(self.end(request, "stop", "", now), vector=sample.vector)]
        if request.beams is None:
            return [self.end(request, "length", "", now)]
        group = request.beams
        request.pending -= 1
        group.lead.first_token = group.lead.first_token or now
        if not beams.take(request, group, sample.candidates, self._memory):
            return []  # once all other beams have candidates too, the answers may be found
        self._forecast.observe(group.lead)
        self._requests.remove(group.lead)
        return beams.answers(group, now)

    def _prompt_logprobs(self, request: Request, start: int, scores: Sequence[PromptLogprob]) -> list[Tokens]:
        """The scores that were not reported before a preemption, in frames of bounded size."""
        new = scores[max(request.reported - start, 0) :]
        request.reported = max(request.reported, start + len(scores))
        parts = [list(new[first : first + MAX_FRAME_TOKENS]) for first in range(0, len(new), MAX_FRAME_TOKENS)]
        return [Tokens(request.id, 0, [], cached=request.cached, prompt_logprobs=part) for part in parts]
