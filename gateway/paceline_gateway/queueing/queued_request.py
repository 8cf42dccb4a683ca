"""A place in a service's queue."""

from dataclasses import dataclass

from paceline_core.registry.enums import RequestClass
from paceline_gateway.request.group_testing import SuspectGroup, patience_s, recurs

OUTPUT_WEIGHT = 2
"""An output token's cost in prompt tokens, as VTC has it: it takes a step of its own."""


@dataclass(slots=True, eq=False)
class QueuedRequest:
    """One waiting or dispatched request. `size` is its body's bytes; `avoid` names workers that failed it.

    `keys` name the beginnings of its prompt of `prompt_bytes` canonical bytes. `cached_tokens` is an estimate, known
    once a worker was picked. `resumed`: it waits to go on with a stream that has begun. `suspect`: a worker may
    have died of it (`request.group_testing`).
    """

    id: int
    request_class: RequestClass
    prompt_tokens: int
    size: int
    deadline: float
    joined: float = 0.0
    stream: bool = True
    avoid: frozenset[str] = frozenset()
    tenant: str = ""
    weight: int = 1
    expected_output: int = 0
    keys: tuple[str, ...] = ()
    prompt_bytes: int = 0
    cached_tokens: int = 0
    resumed: bool = False
    suspect: bool = False
    accused: int = 0
    """How often."""
    sure_until: float = 0.0
    """Until then its trial is to be certain rather than quick."""
    died_at: int = 0
    """Tokens that its stream had brought at a worker when that one died, until it has got past so many; 0 if none."""
    past: int = 0
    """Tokens that a trial for certain has to bring beyond PROOF: so many it had when it recurred (`died_at`)."""
    bystander: bool = False
    """Its worker died of another one."""
    charged: float = 0.0
    """Tokens that its tenant's account was charged when it was first given out, output twice."""
    overtaken: int = 0
    """How often another one was preferred when it was the next."""

    def accuse(self, part: SuspectGroup, tokens: int, now: float) -> None:
        """Note its part in the death of a worker that brought so many tokens of it."""
        if part is SuspectGroup.BYSTANDER:
            self.bystander = True
            return
        self.past = tokens if recurs(self.died_at, tokens) else 0
        self.suspect, self.accused, self.died_at = True, self.accused + 1, tokens if self.stream else 0
        self.sure_until = now + patience_s(self.accused)

    def take_suspicion(self, other: "QueuedRequest") -> None:
        """Carry on the suspicion of `other`, the same request at another service."""
        self.suspect, self.bystander = other.suspect, other.bystander
        self.accused, self.sure_until = other.accused, other.sure_until
        self.died_at, self.past = other.died_at, other.past

    @property
    def cost(self) -> int:
        """The expected charge, were nothing cached."""
        return self.prompt_tokens + OUTPUT_WEIGHT * self.expected_output
