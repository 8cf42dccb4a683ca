"""The fluid state of one pool: replicas that start, run and drain, the queue before them, and what they decode. Pure.

All ready replicas are alike: work is spread evenly over them, so a new one has its part of the sequences at once. While
prompts wait, every step is as long as the TPOT limit and `step_tokens` allow; else prompts take as much of the time as
they need and the rest of a step is decoding. Sequences leave at the rate of the steps over their mean output, as if
lengths were exponential; a part of the requests ends when as many steps have passed as its mean output has tokens.

A draining replica's sequences end there, or after GRACE_S go on elsewhere, where their tokens are prefilled anew, as
soon as nobody waits. A drain ends with its last request.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import exp, expm1, inf
from statistics import NormalDist

from paceline_autoscaler.policies.fluid_queue import DeadlineQueue, Part
from paceline_planner.replica import ReplicaModel, RequestMix

STEPS_AHEAD = 1.5
"""Steps before a request's own: half of the one under way, and the one that is planned already."""
FIRST_AGE_S = 86_400.0
"""The age of replicas that are ready from the start: an autoscaler must not take them for fast starts."""
GRACE_S = 1.0
"""A draining replica's streams move after this time, as in the gateway's evacuation."""
_DEVIATIONS = tuple(NormalDist().inv_cdf((2 * place + 1) / 16) for place in (0, 4, 2, 6, 1, 5, 3, 7))
"""The middles of eight equal parts of the normal distribution, far from each other in turn."""
_ROUNDING = 1e-6
_LAST = 0.5
"""A drain has ended when fewer requests than this are left of it."""


@dataclass(slots=True, eq=False)
class FluidReplica:
    """`ready` is when it is, `running` what it still decodes while it drains, since `drained`."""

    name: str
    ordered: float
    ready: float
    drained: float | None = None
    running: float = 0.0


@dataclass(slots=True)
class Answers:
    """A part of the requests while it decodes, and since when.

    As of its first token: the seconds of a mean step, of one that only decodes, and of the longest one.
    """

    part: Part
    begun: float
    step_s: float
    decode_step_s: float
    longest_step_s: float

    @property
    def prefill_share(self) -> float:
        """The share of a busy replica's time that prompts have."""
        return 1 - self.decode_step_s / self.longest_step_s


@dataclass(frozen=True, slots=True)
class Ended:
    """A part of the requests that has ended at `at`; its steps took `tpot_s` on average."""

    at: float
    answers: Answers
    tpot_s: float

    def keeps(self, tpot_s: float) -> bool:
        """Whether its mean TPOT is within the limit, which steps reach exactly where prompts wait."""
        return self.tpot_s <= tpot_s * (1 + _ROUNDING)


@dataclass(slots=True)
class FluidPool:
    """Of the requests on ready replicas, prompts of `prefilling` are computed and `running` decode.

    Those that decode hold `held` KV tokens, and will have `outputs` tokens in all.
    `steps`: that each replica has taken; `answers`: what decodes, with the count of steps at which it has ended.
    """

    model: ReplicaModel
    lead_s: float
    lead_spread: float = 0.0
    queue: DeadlineQueue = field(default_factory=DeadlineQueue)
    desired: int = 0
    ready: list[FluidReplica] = field(default_factory=list)
    starting: list[FluidReplica] = field(default_factory=list)
    draining: list[FluidReplica] = field(default_factory=list)
    prefilling: float = 0.0
    running: float = 0.0
    held: float = 0.0
    outputs: float = 0.0
    steps: float = 0.0
    step_s: float = 0.0
    decode_step_s: float = 0.0
    answers: list[tuple[float, int, Answers]] = field(default_factory=list)
    _moved_work: float = 0.0
    _ordered: int = 0
    _parts: int = 0

    @property
    def size(self) -> int:
        """Replicas that are paid."""
        return len(self.ready) + len(self.starting) + len(self.draining)

    @property
    def mean_output(self) -> float:
        return self.outputs / self.running if self.running > 0 else 0.0

    @property
    def mean_held(self) -> float:
        return self.held / self.running if self.running > 0 else 0.0

    # --- replicas

    def begin(self, replicas: int) -> None:
        """Start with so many ready replicas, as old as FIRST_AGE_S."""
        self.desired = replicas
        self.ready = [self._order(-FIRST_AGE_S) for _ in range(replicas)]

    def scale(self, desired: int, now: float) -> None:
        """Order or release replicas: starting ones go first and at once, then the newest ready ones drain."""
        self.desired = desired
        more = desired - len(self.ready) - len(self.starting)
        self.starting += [self._start(now) for _ in range(more)]
        for _ in range(-more):
            if self.starting:
                self.starting.pop()
            else:
                self._drain(now)

    def next_ready(self) -> float:
        return min([replica.ready for replica in self.starting], default=inf)

    def start_due(self, now: float) -> None:
        if self.next_ready() <= now:
            self.ready += [replica for replica in self.starting if replica.ready <= now]
            self.starting = [replica for replica in self.starting if replica.ready > now]

    def _start(self, now: float) -> FluidReplica:
        replica = self._order(now)
        deviation = _DEVIATIONS[self._ordered % len(_DEVIATIONS)]
        replica.ready = now + self.lead_s * max(1 + self.lead_spread * deviation, 0.0)
        return replica

    def _order(self, now: float) -> FluidReplica:
        self._ordered += 1
        return FluidReplica(f"fluid-{self._ordered}", now, now)

    def _drain(self, now: float) -> None:
        """Drain the newest ready replica."""
        share = 1 / len(self.ready)
        replica = self.ready.pop()
        replica.drained, replica.running = now, self.running * share
        self._keep(1 - share)
        self.draining.append(replica)

    # --- requests

    def advance(self, start: float, end: float, mix: RequestMix) -> None:
        """Serve and decode from `start` to `end`, with constant replicas. `mix` is the latest request's."""
        if self.ready:
            self._serve(start, end, mix)
        else:  # what still runs does so on draining replicas
            self.step_s = self.model.decode_step_s(0.0, 0.0)
            self.steps += (end - start) / self.step_s
        if self.draining:
            self._end_drains(start, end, mix)

    def _serve(self, start: float, end: float, mix: RequestMix) -> None:
        replicas, seconds = len(self.ready), end - start
        each = self.running / replicas
        decode_s = self.model.decode_step_s(each, self.mean_held)
        share = self.model.prefill_share(each, decode_s, mix)
        work = share * replicas * seconds - self._moved_work
        self._moved_work = max(-work, 0.0)
        room = max(replicas * self.model.most_running(self.mean_held) - self.running, 0.0)
        leaving = self.running * seconds / max(self.step_s * self.mean_output, _LAST * seconds)
        served = list(self.queue.serve(max(work, 0.0), room + leaving, start, end))
        used = sum([part.requests * part.mix.prefill_s for part in served]) / (replicas * seconds)
        self.decode_step_s, longest_s = decode_s, decode_s / (1 - share)
        self.step_s = decode_s / (1 - min(used, share))
        self.prefilling = sum([part.requests / seconds * self._first_token_s(part.mix, share) for part in served])
        self._decode(start, seconds, served, longest_s)

    def _first_token_s(self, mix: RequestMix, share: float) -> float:
        """Seconds from a mean request's turn to its first token."""
        return STEPS_AHEAD * self.step_s + (mix.prefill_s / share if share > 0 else 0.0)

    def finished(self, now: float) -> Iterator[Ended]:
        """The parts that have had their last token by `now`, the end of the step."""
        while self.answers and self.answers[0][0] <= self.steps:
            last_step, _, answers = heappop(self.answers)
            at = now - (self.steps - last_step) * self.step_s
            output = answers.part.mix.output
            yield Ended(at, answers, (at - answers.begun) / output if output else 0.0)

    def _decode(self, start: float, seconds: float, served: list[Part], longest_s: float) -> None:
        """Sequences join evenly and leave; those that join have half of the time on average to leave again."""
        steps = seconds / self.step_s
        if self.running > 0:
            self._keep(exp(-steps / max(self.mean_output, 1.0)))
        begun, at = start + seconds / 2, self.steps + steps / 2
        self.steps += steps
        for part in served:
            output = max(part.mix.output, 1.0)
            staying = part.requests * -expm1(-steps / output) * output / steps
            self.running += staying
            self.outputs += staying * output
            self.held += staying * part.mix.held_tokens
            self._parts += 1
            answers = Answers(part, begun, self.step_s, self.decode_step_s, longest_s)
            heappush(self.answers, (at + part.mix.output, self._parts, answers))

    def _keep(self, share: float) -> None:
        self.running *= share
        self.outputs *= share
        self.held *= share

    def _end_drains(self, start: float, end: float, mix: RequestMix) -> None:
        kept = []
        for replica in self.draining:
            steps = (end - start) / self.model.decode_step_s(replica.running, mix.held_tokens)
            replica.running *= exp(-steps / max(mix.output, 1.0))
            if self.ready and not self.queue.requests and end >= (replica.drained or 0.0) + GRACE_S:
                self._move(replica, mix)
            if replica.running >= _LAST:
                kept.append(replica)
        self.draining = kept

    def _move(self, replica: FluidReplica, mix: RequestMix) -> None:
        """Its streams go on at the others, which prefill their tokens once more."""
        moved, replica.running = replica.running, 0.0
        self._moved_work += moved * mix.prefill_s * mix.held_tokens / max(mix.prompt, 1.0)
        self.running += moved
        self.outputs += moved * max(mix.output, 1.0)
        self.held += moved * mix.held_tokens
