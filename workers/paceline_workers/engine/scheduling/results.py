"""What a step has computed is taken in: tokens, names for the pages that became full, and the ends of requests."""

from collections.abc import Sequence

from msgspec import structs

from paceline_workers.engine.scheduling.beams import lead
from paceline_workers.engine.scheduling.forecast import Forecast
from paceline_workers.engine.scheduling.plan import Plan, Sample
from paceline_workers.engine.scheduling.request import Request, State
from paceline_workers.engine.scheduling.seats import Seats
from paceline_workers.messages import Tokens


class Results:
    """Tells what each client is to hear. Who has left meanwhile has its late token dropped."""

    def __init__(self, seats: Seats, forecast: Forecast) -> None:
        self._memory = seats.memory
        self._seats = seats
        self._forecast = forecast

    def take(self, plan: Plan, samples: Sequence[Sample], now: float) -> list[Tokens]:
        """One sample per chunk that `samples`, in order. Raises ValueError if there are more or fewer."""
        chunks, size, runs = plan.chunks, self._memory.page_tokens, State.RUNNING
        if len(samples) != sum([chunk.samples for chunk in chunks]):
            raise ValueError(f"{len(samples)} samples are more or fewer than the chunks that sample")
        drawn = iter(samples)
        events: list[Tokens] = []
        for chunk in chunks:
            request = chunk.request
            sample = next(drawn) if chunk.samples else None
            if request.state is not runs:
                continue
            end = chunk.start + chunk.count
            if end % size < chunk.count:  # it has come to the end of a page
                self._memory.publish(request, chunk.start, end)
            if sample is None:
                continue
            if sample.error or sample.vector or request.beams is not None:
                events += self._special(request, sample, now)
            else:
                events.append(self._append(request, sample, now))
        return events

    def end(self, request: Request, finish: str, error: str, now: float) -> Tokens:
        """It is over, without another token."""
        self._seats.remove(request)
        timing = request.timing(now)
        return Tokens(request.id, request.produced, [], finish, error, request.cached, timing=timing)

    def _append(self, request: Request, sample: Sample, now: float) -> Tokens:
        token, tokens = sample.token, request.tokens
        tokens.append(token)
        request.pending -= 1
        if request.first_token is None:
            request.first_token = now
            self._seats.follow(request, now)
        position = len(tokens) - request.prompt_len - 1
        logprobs = [] if sample.logprobs is None else [sample.logprobs]
        if (sample.ended or token in request.stop_ids or len(tokens) >= request.end) and (
            finish := self._finish(request, sample, position + 1)
        ):
            timing = request.timing(now)
            return Tokens(request.id, position, [token], finish, "", request.cached, logprobs, timing)
        return Tokens(request.id, position, [token], "", "", request.cached, logprobs)

    def _finish(self, request: Request, sample: Sample, produced: int) -> str:
        """Why it ends with this token, and that it does; "" if it goes on."""
        finish = "stop" if sample.ended else request.finish(produced, request.end)
        if finish:
            self._forecast.observe(request)
            self._seats.remove(request)
        return finish

    def _special(self, request: Request, sample: Sample, now: float) -> list[Tokens]:
        """A row that went wrong, a vector, or a beam's candidates."""
        if sample.error:
            return [self.end(lead(request), "error", sample.error, now)]
        if sample.vector:
            return [structs.replace(self.end(request, "stop", "", now), vector=sample.vector)]
        return self._search(request, sample, now)

    def _search(self, member: Request, sample: Sample, now: float) -> list[Tokens]:
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
