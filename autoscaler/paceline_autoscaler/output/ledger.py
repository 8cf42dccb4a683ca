"""The ledger: every decision with its inputs, so that it can be read and computed again.

An entry is written when a decision changes in kind (direction, reason, limit, gaps, replicas) or in ready replicas; the
decisions in between only increase a count. Keyframes show that nothing has changed: one a minute while anything but
time differs, else one in ten minutes. The newest entries are in memory, all of them in files if there is a directory
for them. Where files cannot be written, decisions continue and a warning says so once.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import merge
from itertools import islice, takewhile
from typing import TypeVar

from paceline_autoscaler.output.ledger_entry import EntryKind, LedgerEntry, encode
from paceline_autoscaler.output.ledger_files import LedgerFiles
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import Decision, Observation
from paceline_core.telemetry import FaultLog, get_logger

KEYFRAME_S = 60.0
QUIET_KEYFRAME_S = 600.0
MAX_IN_MEMORY = 512
_UNWRITTEN = "decisions are not written to the ledger's directory; the newest are in memory"
_UNDELETED = "the ledgers of services that are gone are not deleted"
T = TypeVar("T")
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LedgerQuery:
    """The newest `limit` entries of a `kind` (None: any) that are not older than `since`, in Unix seconds."""

    limit: int
    since: float = 0.0
    kind: EntryKind | None = None

    def select(self, newest_first: Iterator[LedgerEntry]) -> Iterator[LedgerEntry]:
        recent = takewhile(lambda entry: entry.at >= self.since, newest_first)
        return islice((entry for entry in recent if self.kind in (None, entry.kind)), self.limit)


@dataclass(slots=True)
class _Last:
    entry: LedgerEntry
    held: int = 0


class Ledger:
    """The newest MAX_IN_MEMORY entries of all services in memory; `files` has those of earlier processes too."""

    def __init__(self, files: LedgerFiles | None = None) -> None:
        self._files = files
        self._entries: deque[LedgerEntry] = deque(maxlen=MAX_IN_MEMORY)
        self._last: dict[str, _Last] = {}
        self._unwritten: set[str] = set()
        self._faults = FaultLog(_log)

    def add(
        self, state: State, knowledge: Knowledge, observation: Observation, decision: Decision
    ) -> LedgerEntry | None:
        """Write a decision or count it as held; `state` is the state that it was made with."""
        service = observation.goal.service
        last = self._last.get(service)
        kind: EntryKind | None = "change" if last is None else _kind(last.entry, observation, decision)
        if kind is None:
            self._last[service].held += 1
            return None
        entry = LedgerEntry(kind, 0 if last is None else last.held, state, knowledge, observation, decision)
        self._last[service] = _Last(entry)
        self._entries.append(entry)
        self._write(entry)
        return entry

    def newest(self, query: LedgerQuery) -> Iterator[LedgerEntry]:
        """Entries of all services from memory, newest first."""
        return query.select(iter([*reversed(self._entries)]))

    def newest_of(self, service: str, query: LedgerQuery) -> Iterator[LedgerEntry]:
        """Entries of one service, newest first. The iterator reads files: iterate over it outside the event loop."""
        last = [self._last[service].entry] if service in self._last else []
        memory = last + [entry for entry in reversed(self._entries) if entry.service == service]
        stored = self._files.newest(service) if self._files else iter(())
        return query.select(_distinct(merge(memory, stored, key=lambda entry: entry.at, reverse=True)))

    def forget(self, service: str) -> None:
        """Another autoscaler may decide about it from now on; the next entry of this one is a change."""
        self._last.pop(service, None)

    def delete(self, service: str) -> None:
        """A service is deleted: forget it and everything that was written about it."""
        self.forget(service)
        self._entries = deque((entry for entry in self._entries if entry.service != service), MAX_IN_MEMORY)
        self._unwritten.discard(service)
        if self._files is not None:
            self._reported(self._files.delete, service)

    def delete_others(self, alive: Collection[str]) -> None:
        """Delete the files of all other services: some were deleted while no autoscaler ran."""
        if self._files is not None:
            self._reported(self._files.delete_others, alive)

    def _write(self, entry: LedgerEntry) -> None:
        if self._files is None:
            return
        try:
            self._files.append(entry.service, *encode(entry))
        except OSError as error:
            self._unwritten.add(entry.service)
            self._faults.begin(_UNWRITTEN, error.strerror or str(error))
        else:
            self._unwritten.discard(entry.service)
            if not self._unwritten:
                self._faults.end(_UNWRITTEN)

    def _reported(self, delete: Callable[[T], None], what: T) -> None:
        try:
            delete(what)
        except OSError as error:
            self._faults.begin(_UNDELETED, error.strerror or str(error))
        else:
            self._faults.end(_UNDELETED)


def same_kind(one: Decision, other: Decision) -> bool:
    """Whether two decisions differ only in numbers and words."""
    first, second = (
        (each.direction, each.reason, each.limit, each.gaps, [(pool.replicas, pool.wish) for pool in each.pools])
        for each in (one, other)
    )
    return first == second


def _kind(last: LedgerEntry, observation: Observation, decision: Decision) -> EntryKind | None:
    """The kind of entry that a decision needs after the last one; None: it is only counted."""
    if last.observation.supply != observation.supply or not same_kind(last.decision, decision):
        return "change"
    elapsed = observation.now - last.at
    if elapsed < KEYFRAME_S:
        return None
    due = elapsed >= QUIET_KEYFRAME_S or _without_times(last.observation) != _without_times(observation)
    return "keyframe" if due else None


def _without_times(observation: Observation) -> Observation:
    """The observation without what changes while nothing happens."""
    demand = observation.demand
    classes = tuple(replace(each, oldest_s=0.0, deadline_s=None) for each in demand.classes)
    pools = tuple(
        replace(pool, replicas=tuple(replace(replica, age_s=0.0) for replica in pool.replicas))
        for pool in observation.pools
    )
    return replace(
        observation,
        now=0.0,
        demand_age_s=None,
        attainment_age_s=None,
        demand=replace(demand, classes=classes),
        pools=pools,
    )


def _distinct(entries: Iterable[LedgerEntry]) -> Iterator[LedgerEntry]:
    seen: set[float] = set()
    for entry in entries:
        if entry.at not in seen:
            seen.add(entry.at)
            yield entry
