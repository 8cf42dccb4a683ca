"""The search for the request that a worker died of, by group testing. Pure.

A worker that crashes does not say why, and all that ran there is lost with it. After a first death every request that
ran there is a suspect. A suspect goes on like any other, but a worker has one of them on trial at a time: if that
worker dies, the suspect on trial is the culprit and is isolated, and the others that ran there are bystanders. A
suspect that gets on is cleared: after PROOF tokens more than the client has, or when its worker says so.

A cleared stream is watched until it has got past the token of its life at which its first worker died. If a worker
dies while a watched stream is within PROOF tokens of that place, the stream may have done it again: alone it is the
culprit, where this gateway is the worker's only one. Otherwise it is a suspect beside the others that may have done
it, and its next trial for certain lasts past that place.

For CERTAIN_S after a death certainty comes first: a trial begins where no other prompt is being computed, and no new
request joins it. After that speed does, so that a death with many streams does not hold them up: GROUP at a time are on
trial at a worker, one token clears, and other prompts share it. Whenever a worker dies with several on trial, or while
it runs others that may have done it (a prompt being computed, a bystander of an earlier death, a suspect cleared by
less than PROOF), all of these are suspects (again) and nobody is isolated: that is left to their next trials, for which
there is more time.

Invariant: a request that always kills before it is cleared, or a stream that kills at the same token of each life,
kills two workers if its trial begins within CERTAIN_S and nothing else there may have done it, and nobody else is
isolated. Only what is certain counts as a death: a process that no longer listens where it did, or an engine of which
its worker says so; not a drain, an eviction or a silence.
Known holes: a request that kills later than PROOF tokens into each life, at another token each time or without a stream
that shows its tokens, is cleared each time, and a suspect beside it may be blamed; DEATHS bounds it. Among many short
streams at one worker, where no trial begins in time, one that shared DEATHS unexplained deaths may be lost in the next.
So may a suspect whose worker dies of something else during the trial or near its place, be it a request of another
gateway: workers take one suspect at a time from all of them, but fresh requests beside it.
"""

from collections.abc import Iterable, Set
from enum import StrEnum

PROOF = 4
"""Tokens that a suspect must bring beyond those that its client has."""
CERTAIN_S = 0.5
"""How long after a death certainty comes before speed."""
LONGER = 8
"""How many times as long with each further one."""
GROUP = 64
"""Suspects that are on trial together at a worker after that."""
DEATHS = 3
"""Unexplained deaths that a request may outlive."""


class SuspectGroup(StrEnum):
    """A request's part in a worker's death."""

    BYSTANDER = "bystander"
    """Another one is to blame."""
    SUSPECT = "suspect"
    """The request may be to blame, as may others that ran there."""
    CULPRIT = "culprit"
    """The request was at an earlier death too, and on trial at this one."""


def blame(running: Iterable[int], likely: Set[int], doubtful: Set[int]) -> dict[int, SuspectGroup]:
    """Each request's part in the death of the worker that ran them.

    `likely` were on trial there or near the token of their first death; `doubtful` might have done it instead.
    """
    if not likely:
        return dict.fromkeys(running, SuspectGroup.SUSPECT)
    causes = likely | doubtful
    guilt = SuspectGroup.CULPRIT if len(causes) == 1 else SuspectGroup.SUSPECT
    return {each: guilt if each in causes else SuspectGroup.BYSTANDER for each in running}


def recurs(died_at: int, tokens: int) -> bool:
    """Whether a stream is near the token of its life at which an earlier worker died; 0: it shared no such death."""
    return died_at > 0 and abs(tokens - died_at) < PROOF


def patience_s(accused: int) -> float:
    """How long certainty comes first for a suspect that is accused for the first time, the second time, ..."""
    return float(CERTAIN_S * LONGER ** (accused - 1))


def proof(*, sure: bool, past: int = 0) -> int:
    """Tokens that clear a suspect, where certainty comes first or speed; `past`: it recurred at this one."""
    return past + PROOF if sure else 1


def places(*, sure: bool) -> int:
    """How many suspects may be on trial at a worker."""
    return 1 if sure else GROUP
