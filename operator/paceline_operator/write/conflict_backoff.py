"""Somebody undoes what we write: the same wish for the same place, again and again. Each such place is left longer.

Two operators over one namespace, or a controller with another opinion, would else answer each other for ever: every
pass succeeds, so no failure slows them. A wish that is new is written at once; one that was written `FREE` times in a
row waits for a pause that doubles, and counts as contested until nobody touched it for `CALM_S` after such a pause.
Hole: who writes under our own name as well is not told apart from us.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import orjson

from paceline_core.clock import Clock
from paceline_core.kube.cluster import Manifest
from paceline_core.telemetry import get_logger
from paceline_operator.plans.types import MANAGER, Action, Apply, ObjectRef, ObservedChild, PodProblem
from paceline_operator.state.workqueue import MAX_PAUSE_S, backoff_s

FREE = 3
QUIET_PERIOD_S = 60.0
FIELD_MANAGER_CONFLICT = "FieldManagerConflict"
_REMEMBERED = 4096
_log = get_logger(__name__)


@dataclass(slots=True)
class _Conflict:
    """A desired object, how often in a row it was written, when last, and who had changed it."""

    desired: bytes
    times: int
    last: float
    by: str

    @property
    def free_at(self) -> float:
        return self.last + (backoff_s(self.times) if self.times >= FREE else 0.0)


class ConflictBackoff:
    """What was written lately, by place."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._conflicts: OrderedDict[ObjectRef, _Conflict] = OrderedDict()

    def wait_s(self, place: ObjectRef, desired: Manifest) -> float:
        """How long to let a place be before this is written there; 0 for now."""
        conflict = self._current(place)
        return (
            max(conflict.free_at - self._clock.monotonic(), 0.0)
            if conflict and conflict.desired == _digest(desired)
            else 0.0
        )

    def due(self, actions: Sequence[Action]) -> tuple[list[Action], float | None]:
        """The actions that need not wait, and how long the others must."""
        waits = [self.wait_s(*_desired_at(action)) if isinstance(action, Apply) else 0.0 for action in actions]
        due = [action for action, wait in zip(actions, waits, strict=True) if not wait]
        return due, min((wait for wait in waits if wait), default=None)

    def acted(self, actions: Iterable[Action], children: Mapping[ObjectRef, ObservedChild]) -> None:
        for action in actions:
            if isinstance(action, Apply):
                live = children.get(action.child.place)
                self.wrote(*_desired_at(action), live.changed_by if live else "")

    def wrote(self, place: ObjectRef, desired: Manifest, by: str = "") -> None:
        conflict, digest, now = self._current(place), _digest(desired), self._clock.monotonic()
        times = conflict.times + 1 if conflict and conflict.desired == digest else 1
        self._conflicts[place] = _Conflict(digest, times, now, by)
        self._conflicts.move_to_end(place)
        if times == FREE + 1:
            _log.warning("a quarrel", extra={"object": f"{place[0]} {place[1]}", "reason": _text(place, by)})
        if len(self._conflicts) > _REMEMBERED:
            self._conflicts.popitem(last=False)

    def problems(self, places: Iterable[ObjectRef]) -> tuple[PodProblem, ...]:
        found = {place: conflict.by for place in places if (conflict := self._current(place)) and conflict.times > FREE}
        return tuple(PodProblem(FIELD_MANAGER_CONFLICT, _text(place, found[place])) for place in sorted(found))

    def quiet_s(self, places: Iterable[ObjectRef]) -> float | None:
        now, conflicts = self._clock.monotonic(), [self._current(place) for place in places]
        return min(
            (conflict.free_at + QUIET_PERIOD_S - now for conflict in conflicts if conflict and conflict.times > FREE),
            default=None,
        )

    def _current(self, place: ObjectRef) -> _Conflict | None:
        conflict = self._conflicts.get(place)
        if conflict is not None and self._clock.monotonic() >= conflict.free_at + QUIET_PERIOD_S:
            del self._conflicts[place]
            return None
        return conflict


def _desired_at(action: Apply) -> tuple[ObjectRef, Manifest]:
    return action.child.place, action.child.body


def _digest(desired: Manifest) -> bytes:
    return hashlib.blake2b(orjson.dumps(desired, option=orjson.OPT_SORT_KEYS), digest_size=12).digest()


def _text(place: ObjectRef, by: str) -> str:
    who = by or f"somebody who writes as {MANAGER} too, perhaps a second install of paceline, or who deletes it"
    return (
        f"{place[0]} {place[1].name} is changed again and again by {who}; it is restored, "
        f"with pauses of up to {MAX_PAUSE_S:.0f} s. Let only one of the two write it"
    )
