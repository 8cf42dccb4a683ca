"""What decisions carry over from one to the next, and what is prepared for them off the loop. No behaviour.

ConfigMaps and ledgers store the field names of `State`, `Knowledge` and their parts. Times are `now`, as in `types`.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from paceline_autoscaler.model.work_history import WorkHistory
from paceline_autoscaler.types import CompletedRequests, PolicyName, Role, StartKind
from paceline_core.wire import StepTime


@dataclass(frozen=True, slots=True)
class PoolSpeed:
    """The speed of one replica of a pool, as last reported."""

    pool: str
    step_time: StepTime
    slots: int
    kv_tokens: int


@dataclass(frozen=True, slots=True)
class StartSample:
    """How long one start took."""

    pool: str
    kind: StartKind
    seconds: float


@dataclass(frozen=True, slots=True)
class KnownNode:
    """A node where a replica of the pool has been ready, first seen so at `since`."""

    pool: str
    name: str
    since: float


@dataclass(frozen=True, slots=True)
class BlockedPool:
    """A pool that seems to have no capacity: it takes no orders before `until`; `tries` failed in a row; `why`."""

    pool: str
    until: float
    tries: int
    why: str


@dataclass(frozen=True, slots=True)
class LearnedState:
    """What all policies learn about one service, small enough for a ConfigMap.

    `starts`: the last starts, oldest first; `drains_s`: durations of the last drains. `starting`, `draining` and
    `silent` (ready, but without a load report): replicas in that state, since when. `started`: replicas that have been
    ready, so that a restart does not count as a long start. `awaited`: pools of orders without a replica, since when.
    `completed`: requests that were answered, of about the last LENGTHS_S. `at`: time of the last update.
    """

    starts: tuple[StartSample, ...] = ()
    nodes: tuple[KnownNode, ...] = ()
    awaited: tuple[tuple[str, float], ...] = ()
    blocked: tuple[BlockedPool, ...] = ()
    drains_s: tuple[float, ...] = ()
    starting: tuple[tuple[str, float], ...] = ()
    started: tuple[str, ...] = ()
    draining: tuple[tuple[str, float], ...] = ()
    silent: tuple[tuple[str, float], ...] = ()
    idle_since: float | None = None
    output_tokens: float | None = None
    completed: CompletedRequests | None = None
    speeds: tuple[PoolSpeed, ...] = ()
    at: float = 0.0


class PolicyState(Protocol):
    """What one policy remembers: a frozen dataclass."""

    def interrupted(self) -> "PolicyState":
        """Without conclusions that assume continuous observation."""
        ...

    def merged(self, recent: Any) -> "PolicyState":
        """With what the same policy has learned since, while this stored state could not be read."""
        ...

    def worth_storing(self, stored: Any) -> bool:
        """Whether it says something that a crash must not lose, compared with the same policy's stored state."""
        ...


@dataclass(frozen=True, slots=True)
class State:
    """What one service's decisions carry over: `own` is what `policy` remembers, None before its first decision."""

    policy: PolicyName | None = None
    learned: LearnedState = LearnedState()
    own: PolicyState | None = None


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What decisions may rest on beside observation and state: made off the loop, and named by its digest in ledgers.

    `histories`: the work of the last days, by role.
    """

    histories: tuple[tuple[Role, WorkHistory], ...] = ()

    def history(self, role: Role) -> WorkHistory:
        """The role's; one without bins if there is none."""
        return dict(self.histories).get(role, WorkHistory())
