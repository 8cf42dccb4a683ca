"""Which request a worker died of, found by group testing. Pure.

A worker that crashes does not say why, and all that ran there is lost with it. After a first death every request that
ran there is a suspect. A suspect goes on like any other, but a worker has at most one of them on trial at a time: if
that worker dies, the suspect on trial is the culprit and is isolated, and the others that ran there are bystanders. A
suspect that gets on is cleared: after PROOF tokens more than the client has, or at the end of an answer that does not
stream, or when its worker says so.

For PATIENCE_S after a death certainty comes first: a trial begins where no other prompt is being computed, and no new
request joins it. After that speed does: one token is proof, and prompts share a worker with a trial. If a worker with a
trial dies while it computes another prompt, or while it runs a request that was a bystander before, these and the one
on trial are suspects (again) and nobody is isolated: that is left to their next trials.

Invariant: of one request that always kills before it is cleared two workers die while trials are certain, and nobody
else is isolated. Only what is certain counts as a death: a process that no longer listens where it did, or an engine of
which its worker says so; not a drain, an eviction or a silence.
Known holes: a request that kills later than PROOF tokens into each life is cleared each time, and a suspect beside it
may be blamed; DEATHS bounds it. So may a suspect whose worker dies of something else during the trial.
"""

from collections.abc import Container, Iterable
from enum import StrEnum

PROOF = 8
"""Tokens that a suspect must bring beyond those that its client has."""
PATIENCE_S = 1.0
"""How long after a death certainty comes before speed."""
DEATHS = 3
"""Unexplained deaths that a request may outlive."""


class Part(StrEnum):
    """A request's part in a worker's death."""

    BYSTANDER = "bystander"
    """Another one is to blame."""
    SUSPECT = "suspect"
    """It may be to blame, as may others that ran there."""
    CULPRIT = "culprit"
    """It was at an earlier death too, and on trial at this one."""


def blame(running: Iterable[int], trial: int | None, doubtful: Container[int]) -> dict[int, Part]:
    """Each request's part in the death of the worker that ran them.

    `trial` was on trial there; `doubtful` might have done it instead.
    """
    if trial is None:
        return dict.fromkeys(running, Part.SUSPECT)
    parts = {each: Part.SUSPECT if each in doubtful else Part.BYSTANDER for each in running}
    others = any(part is Part.SUSPECT for each, part in parts.items() if each != trial)
    return parts | {trial: Part.SUSPECT if others else Part.CULPRIT}


def proof(waited: float) -> int:
    """Tokens that clear a suspect so long after the death."""
    return 1 if waited >= PATIENCE_S else PROOF
