"""A request in a service's queue."""

from collections.abc import Iterable
from dataclasses import dataclass
from math import inf

from paceline_core.registry.enums import RequestClass
from paceline_gateway.request.group_testing import SuspectGroup, patience_s, recurs

OUTPUT_WEIGHT = 2
"""An output token's cost in prompt tokens, as in VTC: it takes a step of its own."""


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """One waiting or dispatched request. `size` is its body's bytes; `avoid` names workers that failed it.

    `keys` are the prefix keys of its prompt of `prompt_bytes` canonical bytes. `cached_tokens` is an estimate, known
    once a worker was picked. `resumed`: its stream has begun and waits to continue. `suspect`: a worker may have died
    of it (`request.group_testing`).
    """

    id: int
    request_class: RequestClass
    prompt_tokens: int
    size: int
    deadline: float
    joined: float = 0.0
    stream: bool = True
    avoid: frozenset[str] = frozenset()
    in_time_s: float = inf
    """How long it may wait and still be in time for its targets."""
    tenant: str = ""
    weight: int = 1
    expected_output: int = 0
    keys: tuple[str, ...] = ()
    prompt_bytes: int = 0
    cached_tokens: int = 0
    resumed: bool = False
    suspect: bool = False
    accused: int = 0
    """How many worker deaths it was accused of."""
    sure_until: float = 0.0
    """Until this time its trial aims at certainty; afterwards at speed."""
    died_at: int = 0
    """Tokens that its stream had brought when its worker died, until it gets past that number; 0 if none."""
    past: int = 0
    """Tokens beyond PROOF that a trial for certainty needs: those that it had when the death recurred (`died_at`)."""
    bystander: bool = False
    """Its worker died of another request."""
    charged: float = 0.0
    """Tokens charged to its tenant when it was first dispatched; output counts twice."""
    overtaken: int = 0
    """How often another request was preferred while this one was next."""

    def accuse(self, part: SuspectGroup, tokens: int, now: float) -> None:
        """Note its part in the death of a worker that had brought `tokens` of its stream."""
        if part is SuspectGroup.BYSTANDER:
            self.bystander = True
            return
        self.past = tokens if recurs(self.died_at, tokens) else 0
        self.suspect, self.accused, self.died_at = True, self.accused + 1, tokens if self.stream else 0
        self.sure_until = now + patience_s(self.accused)

    def take_suspicion(self, other: "QueuedRequest") -> None:
        """Copy the suspicion of `other`, the same request at another service."""
        self.suspect, self.bystander = other.suspect, other.bystander
        self.accused, self.sure_until = other.accused, other.sure_until
        self.died_at, self.past = other.died_at, other.past

    def resume(self, prompt_tokens: int, avoid: Iterable[str]) -> None:
        """Wait to continue a stream: its text so far counts as prompt; `avoid` workers that could not continue it."""
        self.resumed, self.prompt_tokens = True, prompt_tokens
        self.avoid |= frozenset(avoid)

    @property
    def due(self) -> float:
        """From then on it is too late for its targets."""
        return self.joined + self.in_time_s

    @property
    def cost(self) -> int:
        """The expected charge without any cached prefix."""
        return self.prompt_tokens + OUTPUT_WEIGHT * self.expected_output
