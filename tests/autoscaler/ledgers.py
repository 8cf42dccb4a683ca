"""Entries and ledgers to start from."""

from pathlib import Path

from tests.autoscaler.factories import STEADY, decide
from tests.autoscaler.plant import Plant, goal_of

from paceline_autoscaler.output.ledger import Ledger, LedgerQuery
from paceline_autoscaler.output.ledger_entry import EntryKind, LedgerEntry
from paceline_autoscaler.output.ledger_files import LedgerFiles, read
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import Observation

ALL = LedgerQuery(limit=10_000)
VOLUME = 1 << 30


def entry_of(seen: Observation, state: State | None = None, kind: EntryKind = "change") -> LedgerEntry:
    known = state or State()
    return LedgerEntry(kind, 0, known, STEADY, seen, decide(seen, known)[0])


def keep(ledger: Ledger, seen: Observation, state: State | None = None) -> LedgerEntry | None:
    known = state or State()
    return ledger.add(known, STEADY, seen, decide(seen, known)[0])


def burst_in(directory: Path) -> Path:
    """The file of a ledger of five minutes with a burst in them, one decision a second."""
    plant = Plant(goal_of(), lambda t: 24 if 60 <= t < 120 else 4, seed=1)
    ledger = Ledger(LedgerFiles(directory, VOLUME))
    for _ in range(300):
        known = plant.state
        seen, decision = plant.second()
        ledger.add(known, Knowledge(), seen, decision)
    return directory / "default.chat.jsonl"


def entries_in(path: Path) -> list[LedgerEntry]:
    """The entries of a file without a damaged line."""
    found = read(path)
    assert all(isinstance(entry, LedgerEntry) for entry in found), found
    return [entry for entry in found if isinstance(entry, LedgerEntry)]
