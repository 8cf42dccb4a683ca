"""The fluid state of one pool: replicas that start, run and drain, the queue before them, and what they decode. Pure.

All ready replicas are alike: work is spread evenly over them, so a new one has its part of the sequences at once. While
prompts wait, every step is as long as the TPOT limit and `step_tokens` allow; else prompts take as much of the time as
they need and the rest of a step is decoding. Sequences leave at the rate of the steps over their mean output, as if
lengths were exponential; a part of the requests ends when as many steps have passed as its mean output has tokens.

A draining replica's sequences end there, or after GRACE_S go on elsewhere, where their tokens are prefilled anew, as
soon as nobody waits. A drain ends with its last request.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import exp, inf

from paceline_autoscaler.policies.fluid_queue import DeadlineQueue, Part
from paceline_autoscaler.policies.fluid_replica import ReplicaModel, RequestMix

GRACE_S = 1.0
"""A draining replica's streams move after this time, as in the gateway's evacuation."""
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
    """A part of the requests while it decodes: from when on, and at which count of steps it has ended.

    As of its first token: the seconds of a mean step, of one that only decodes, and of the longest one.
    """

    part: Part
    begun: float
    last_step: float
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


@dataclass(slots=True)
class FluidPool:
    """`running` sequences decode on ready replicas, which hold `held` KV tokens; `steps` were taken by each replica."""

    model: ReplicaModel
    lead_s: float
    queue: DeadlineQueue = field(default_factory=DeadlineQueue)
    desired: int = 0
    ready: list[FluidReplica] = field(default_factory=list)
    starting: list[FluidReplica] = field(default_factory=list)
    draining: list[FluidReplica] = field(default_factory=list)
    running: float = 0.0
    held: float = 0.0
    outputs: float = 0.0
    steps: float = 0.0
    step_s: float = 0.0
    answers: deque[Answers] = field(default_factory=deque)
    _moved_work: float = 0.0
    _ordered: int = 0

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
        self.desired = replicas
        self.ready = [self._order(0.0, 0.0) for _ in range(replicas)]

    def scale(self, desired: int, now: float) -> None:
        """Order or release replicas: starting ones go first and at once, then the newest ready ones drain."""
        self.desired = desired
        more = desired - len(self.ready) - len(self.starting)
        self.starting += [self._order(now, now + self.lead_s) for _ in range(more)]
        for _ in range(-more):
            if self.starting:
                self.starting.pop()
            else:
                self._drain(now)

    def next_ready(self) -> float:
        return self.starting[0].ready if self.starting else inf

    def start_due(self, now: float) -> None:
        while self.starting and self.starting[0].ready <= now:
            self.ready.append(self.starting.pop(0))

    def _order(self, now: float, ready: float) -> FluidReplica:
        self._ordered += 1
        return FluidReplica(f"fluid-{self._ordered}", now, ready)

    def _drain(self, now: float) -> None:
        """Drain the newest ready replica."""
        share = 1 / len(self.ready)
        replica = self.ready.pop()
        replica.drained, replica.running = now, self.running * share
        self._keep(1 - share)
        self.draining.append(replica)

    # --- requests

    def arrive(self, start: float, end: float, requests: float, mix: RequestMix) -> None:
        if requests > 0:
            self.queue.join(start, end, requests, mix)

    def advance(self, start: float, end: float, mix: RequestMix) -> None:
        """Serve and decode from `start` to `end`, with constant replicas. `mix` is the latest request's."""
        if self.draining:
            self._end_drains(start, end, mix)
        replicas, seconds = len(self.ready), end - start
        if not replicas:  # what still runs does so on draining ones
            self.step_s = self.model.decode_step_s(0.0, 0.0)
            self.steps += seconds / self.step_s
            return
        each = self.running / replicas
        decode_s = self.model.decode_step_s(each, self.mean_held)
        share = self.model.prefill_share(each, decode_s, mix)
        work = share * replicas * seconds - self._moved_work
        self._moved_work = max(-work, 0.0)
        room = max(replicas * self.model.most_running(self.mean_held) - self.running, 0.0)
        leaving = self.running * seconds / max(self.step_s * self.mean_output, _LAST * seconds)
        served = list(self.queue.serve(max(work, 0.0), room + leaving, start, end))
        used = sum([part.requests * part.mix.prefill_s for part in served]) / (replicas * seconds)
        self.step_s, longest_s = decode_s / (1 - min(used, share)), decode_s / (1 - share)
        self.steps += seconds / self.step_s
        self._decode(seconds, served)
        for part in served:
            self.answers.append(Answers(part, end, self.steps + part.mix.output, self.step_s, decode_s, longest_s))

    def finished(self, now: float) -> Iterator[Ended]:
        """Those that have had their last token by `now`, the end of the step."""
        while self.answers and self.answers[0].last_step <= self.steps:
            answers = self.answers.popleft()
            at = now - (self.steps - answers.last_step) * self.step_s
            output = answers.part.mix.output
            yield Ended(at, answers, (at - answers.begun) / output if output else 0.0)

    def _decode(self, seconds: float, served: list[Part]) -> None:
        """Sequences join and leave; those that join leave at the same rate."""
        if self.running > 0:
            steps = seconds / self.step_s
            self._keep(exp(-steps / max(self.mean_output, 1.0)))
        for part in served:
            self.running += part.requests
            self.outputs += part.requests * max(part.mix.output, 1.0)
            self.held += part.requests * part.mix.held_tokens

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
