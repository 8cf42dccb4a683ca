"""Group testing: the search for the request that a worker died of. Pure.

A worker that crashes does not say why, and everything that ran there is lost with it. After a first death every request
that ran there is a suspect. A suspect continues like any other request, but a worker has one of them on trial at a
time: if that worker dies, the suspect on trial is the culprit and is isolated, and the others there are bystanders. A
suspect that makes progress is cleared: after PROOF tokens more than the client has, or when its worker says so.

A cleared stream is watched until it has passed the token at which its first worker died. If a worker dies while a
watched stream is within PROOF tokens of that place, the stream may be the cause again. If no other request may be, and
this gateway is the worker's only one, it is the culprit. Otherwise it is a suspect with the others that may be the
cause, and its next trial for certainty lasts beyond that place.

For CERTAIN_S after a death, certainty comes first: a trial begins where no other prompt is being computed, and no new
request joins it. After that speed comes first, so that a death with many streams does not delay them: GROUP at a time
are on trial at a worker, one token clears, and other prompts share it. A worker may die with several requests on trial,
or with others that may be the cause: a prompt being computed, a bystander of an earlier death, a suspect cleared by
fewer than PROOF tokens. Then all of these are suspects (again) and none is isolated: their next trials, which have more
time, decide.

Invariant: a request that always kills before it is cleared, or a stream that always kills at the same token, kills two
workers if its trial begins within CERTAIN_S and nothing else there may be the cause, and no other request is isolated.
Only certain deaths count: a process that no longer listens at its port, or an engine whose worker reports its death;
not a drain, an eviction or a silence.
Known holes: a request that kills later than PROOF tokens into each attempt is cleared each time, if it does so at
another token each time or its stream shows no tokens; a suspect beside it may be blamed. DEATHS bounds it. Among many
short streams at a worker, where no trial begins in time, one that shared DEATHS unexplained deaths may be lost in the
next. So may a suspect whose worker dies of something else during its trial or near its place, such as a request of
another gateway: workers take one suspect at a time from all gateways, but new requests beside it.
"""

from collections.abc import Iterable, Set
from enum import StrEnum

PROOF = 4
"""Tokens beyond those that its client has which clear a suspect."""
CERTAIN_S = 0.5
"""How long after a death certainty comes before speed."""
LONGER = 8
"""The factor by which that time grows with each further accusation."""
GROUP = 64
"""The most suspects on trial together at a worker when speed comes first."""
DEATHS = 3
"""Unexplained deaths that a request may survive."""


class SuspectGroup(StrEnum):
    """A request's part in a worker's death."""

    BYSTANDER = "bystander"
    """Another request is to blame."""
    SUSPECT = "suspect"
    """The request may be to blame, as may others that ran there."""
    CULPRIT = "culprit"
    """The request was at an earlier death too, and on trial at this one."""


def blame(running: Iterable[int], likely: Set[int], doubtful: Set[int]) -> dict[int, SuspectGroup]:
    """Each request's part in the death of the worker that ran them.

    `likely` were on trial there or near the token of their first death; `doubtful` are other possible causes.
    """
    if not likely:
        return dict.fromkeys(running, SuspectGroup.SUSPECT)
    causes = likely | doubtful
    guilt = SuspectGroup.CULPRIT if len(causes) == 1 else SuspectGroup.SUSPECT
    return {each: guilt if each in causes else SuspectGroup.BYSTANDER for each in running}


def recurs(died_at: int, tokens: int) -> bool:
    """Whether a stream is near the token at which an earlier worker died; 0: it shared no such death."""
    return died_at > 0 and abs(tokens - died_at) < PROOF


def patience_s(accused: int) -> float:
    """How long certainty comes first for a suspect with this number of accusations."""
    return float(CERTAIN_S * LONGER ** (accused - 1))


def proof(*, sure: bool, past: int = 0) -> int:
    """Tokens that clear a suspect; `sure`: certainty comes first; `past`: tokens at which it recurred."""
    return past + PROOF if sure else 1


def places(*, sure: bool) -> int:
    """How many suspects may be on trial at a worker."""
    return 1 if sure else GROUP
