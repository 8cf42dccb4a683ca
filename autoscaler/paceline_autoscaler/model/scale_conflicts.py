"""Who else sets the replicas of a service, and when the autoscaler yields to them. Pure.

An edit is a change of a pool's replicas by another writer. It is a conflict if it reverses a write of the autoscaler
within WINDOW_S, or if the autoscaler's next write of the pool reverses it within that time; each edit counts once. The
third conflict of an hour makes the autoscaler yield: whoever scales as well would reverse the next write too, and each
reversal starts and drains replicas for nothing. It scales again after WINDOW_S without an edit, or at once when the
service's spec changes; conflicts of the last hour still count then, so the next one makes it yield again.

After a restart or a hand-over the next process yields on (`resume`): the condition in the service's status says to
whom. Holes: edits between two reads of the scale are one edit, and one that is undone before the next read is none.
Conflicts before the third are in memory alone.
"""

from collections import deque
from dataclasses import dataclass

WINDOW_S = 600.0
CONFLICTS = 3
CONFLICTS_S = 3600.0
UNKNOWN_WRITER = "another writer"


@dataclass(frozen=True, slots=True)
class ReplicaChange:
    """A pool's replicas at `at` (as `now`); `writer` is empty for the autoscaler itself."""

    at: float
    pool: str
    before: int
    after: int
    writer: str = ""

    def reverses(self, other: "ReplicaChange") -> bool:
        """Whether this change goes the other way than an earlier one of the same pool, within WINDOW_S."""
        opposite = (self.after - self.before) * (other.after - other.before) < 0
        return opposite and self.pool == other.pool and 0 <= self.at - other.at <= WINDOW_S

    @property
    def sentence(self) -> str:
        return f"pool {self.pool} was scaled from {self.before} to {self.after} by {self.writer or UNKNOWN_WRITER}"


class ScaleConflicts:
    """One service's edits and conflicts; events come in the order of their times."""

    def __init__(self) -> None:
        self._writes: dict[str, ReplicaChange] = {}
        self._unanswered: dict[str, ReplicaChange] = {}
        """Edits after which the autoscaler has not written, and that are no conflicts yet."""
        self._conflicts: deque[float] = deque(maxlen=CONFLICTS)
        self._edit: ReplicaChange | None = None
        self._scaler = ""
        """To whom the autoscaler yields, as long as edits follow one another; empty if to nobody."""
        self._edited_at = 0.0
        self._generation: int | None = None

    def on_edit(self, edit: ReplicaChange) -> None:
        """Another writer changed a pool."""
        yielding = bool(self.other_scaler(edit.at))
        self._edit, self._edited_at = edit, edit.at
        self._scaler = _other_scaler(edit) if yielding else ""
        write = self._writes.get(edit.pool)
        if write is not None and edit.reverses(write):
            self._unanswered.pop(edit.pool, None)
            self._count(edit, edit.at)
        else:
            self._unanswered[edit.pool] = edit

    def on_write(self, write: ReplicaChange) -> None:
        """The autoscaler changed a pool."""
        self._writes[write.pool] = write
        edit = self._unanswered.pop(write.pool, None)
        if edit is not None and write.reverses(edit):
            self._count(edit, write.at)

    def on_spec(self, generation: int) -> None:
        """The service has this generation: if it is another one than before, the autoscaler scales again."""
        if self._generation not in (None, generation):
            self._scaler = ""
        self._generation = generation

    def resume(self, scaler: str, now: float) -> None:
        """An earlier process yielded to `scaler` (its `other_scaler`); the next conflict counts as one of its own."""
        self._conflicts.extend([now] * (CONFLICTS - 1))
        self._scaler, self._edited_at = scaler, now

    def recent_edit(self, now: float) -> str:
        """The last edit within WINDOW_S as a sentence without its full stop; empty if there is none."""
        return self._edit.sentence if self._edit is not None and now - self._edit.at < WINDOW_S else ""

    def other_scaler(self, now: float) -> str:
        """Who scales which pool too, as a sentence without its full stop, while the autoscaler yields; else empty."""
        return self._scaler if now - self._edited_at < WINDOW_S else ""

    def _count(self, edit: ReplicaChange, at: float) -> None:
        self._conflicts.append(at)
        if len(self._conflicts) == CONFLICTS and at - self._conflicts[0] <= CONFLICTS_S:
            self._scaler = _other_scaler(edit)


def _other_scaler(edit: ReplicaChange) -> str:
    return f"pool {edit.pool} is scaled by {edit.writer or UNKNOWN_WRITER} too"
