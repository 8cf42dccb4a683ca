"""What a step has computed is taken in: tokens, names for the pages that became full, and the ends of requests."""

from collections.abc import Sequence

from msgspec import structs

from paceline_workers.engine.scheduling.beams import lead
from paceline_workers.engine.scheduling.length_forecast import Forecast
from paceline_workers.engine.scheduling.plan import SampledToken, StepPlan
from paceline_workers.engine.scheduling.request import Request, RequestStatus
from paceline_workers.engine.scheduling.running import RunningSet
from paceline_workers.messages import PromptLogprob, Tokens

SCORES = 2048
"""Tokens of a prompt in one frame."""


class StepCommit:
    """Tells what each client is to hear. Who has left meanwhile has its late token dropped."""

    def __init__(self, seats: RunningSet, forecast: Forecast) -> None:
        self._memory = seats.memory
        self._seats = seats
        self._forecast = forecast

    def take(
        self,
        plan: StepPlan,
        samples: Sequence[SampledToken],
        now: float,
        scores: Sequence[Sequence[PromptLogprob]] = (),
    ) -> list[Tokens]:
        """One sample per chunk that `samples`, in order; and `scores` of each that has `scored` tokens.

        Raises ValueError if there are more or fewer.
        """
        chunks, size, runs = plan.chunks, self._memory.page_tokens, RequestStatus.RUNNING
        if len(samples) != sum([chunk.samples for chunk in chunks]):
            raise ValueError(f"{len(samples)} samples are more or fewer than the chunks that sample")
        drawn, scored = iter(samples), iter(scores)
        events: list[Tokens] = []
        for chunk in chunks:
            request, start, count = chunk.request, chunk.start, chunk.count
            sample = next(drawn) if chunk.samples else None
            score = next(scored) if scores and chunk.scored else None
            if request.state is not runs:
                continue
            if (start + count) % size < count:  # it has come to the end of a page
                self._memory.publish(request, start, start + count)
            if score is not None:
                events += self._scored(request, start, score)
            if sample is None:
                continue
            if sample.error or sample.vector or request.beams is not None or not request.max_tokens:
                events += self._special(request, sample, now)
                continue
            token, tokens = sample.token, request.tokens
            tokens.append(token)
            request.pending -= 1
            length, told = len(tokens), sample.logprobs
            if length >= request.end or token in request.stop_ids or sample.ended or request.first_token is None:
                events.append(self._mark(request, sample, now))
                continue
            position = length - request.prompt_len - 1
            events.append(Tokens(request.id, position, [token], "", "", request.cached, [told] if told else []))
        return events

    def end(self, request: Request, finish: str, error: str, now: float) -> Tokens:
        """It is over, without another token."""
        self._seats.remove(request)
        timing = request.timing(now)
        return Tokens(request.id, request.produced, [], finish, error, request.cached, timing=timing)

    def _mark(self, request: Request, sample: SampledToken, now: float) -> Tokens:
        """It has its first token, or perhaps its last one."""
        if request.first_token is None:
            request.first_token = now
            self._seats.follow(request, now)
        produced = request.produced
        finish = "stop" if sample.ended else request.finish(produced, request.end)
        if finish:
            self._forecast.observe(request)
            self._seats.remove(request)
        timing = request.timing(now) if finish else None
        logprobs = [sample.logprobs] if sample.logprobs else []
        return Tokens(request.id, produced - 1, [sample.token], finish, "", request.cached, logprobs, timing)

    def _special(self, request: Request, sample: SampledToken, now: float) -> list[Tokens]:
        """A row that went wrong, a vector, a beam's candidates, or a prompt that nothing follows."""
        if sample.error:
            return [self.end(lead(request), "refused" if sample.refused else "error", sample.error, now)]
        if sample.vector:
            return [structs.replace(self.end(request, "stop", "", now), vector=sample.vector)]
        if request.beams is None:
            return [self.end(request, "length", "", now)]
        return self._search(request, sample, now)

    def _scored(self, request: Request, start: int, scores: Sequence[PromptLogprob]) -> list[Tokens]:
        """Those that an earlier run of the request has not told yet, in frames of a bounded size."""
        new = scores[max(request.told - start, 0) :]
        request.told = max(request.told, start + len(scores))
        parts = [list(new[first : first + SCORES]) for first in range(0, len(new), SCORES)]
        return [Tokens(request.id, 0, [], cached=request.cached, prompt_logprobs=part) for part in parts]

    def _search(self, member: Request, sample: SampledToken, now: float) -> list[Tokens]:
        """A beam has its candidates; with those of all others, the answers may be found."""
        group = member.beams
        assert group is not None
        member.pending -= 1
        group.lead.first_token = group.lead.first_token or now
        if not group.take(member, sample.candidates, self._memory):
            return []
        self._forecast.observe(group.lead)
        self._seats.remove(group.lead)
        return group.tell(now)
