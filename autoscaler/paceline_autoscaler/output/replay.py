"""Reads a ledger's file, explains its decisions and computes each of them again.

Run as `python -m paceline_autoscaler.output.replay FILE...`.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

from paceline_autoscaler.output.ledger_entry import LedgerEntry, decision_json
from paceline_autoscaler.output.ledger_files import read
from paceline_autoscaler.policies import decide
from paceline_core.errors import InvalidInput
from paceline_core.units import counted


def replay(entries: Iterable[LedgerEntry]) -> list[LedgerEntry]:
    """Decide everything again; returns the entries whose decision differs, byte for byte."""
    return [
        entry
        for entry in entries
        if decision_json(decide(entry.observation, entry.state, entry.knowledge)[0]) != decision_json(entry.decision)
    ]


def explain(entry: LedgerEntry) -> str:
    """A few lines for people: when, what, why, what else was possible, what was missing."""
    decision = entry.decision
    lines = [f"{entry.time}  {entry.service}  {decision.sentence}"]
    folded = f"; {counted(entry.held, 'time')} the same before" if entry.held else ""
    lines.append(f"    reason {decision.reason}, limit {decision.limit}{folded}")
    lines += [f"    not {rejected.sentence}" for rejected in decision.rejected]
    lines += [f"    deferred: {', '.join(decision.deferred)}"] if decision.deferred else []
    lines += [f"    {decision.reading.forecast.sentence}"] if decision.reading.forecast else []
    lines += [f"    missing: {', '.join(decision.gaps)}"] if decision.gaps else []
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print ledgers and check them; 1 when a decision does not replay, 2 when a file or a line cannot be read."""
    if not arguments:
        sys.stderr.write("usage: python -m paceline_autoscaler.output.replay FILE...\n")
        return 2
    try:
        found = [entry for name in arguments for entry in read(Path(name))]
    except InvalidInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    damaged = [entry for entry in found if isinstance(entry, InvalidInput)]
    entries = [entry for entry in found if isinstance(entry, LedgerEntry)]
    different = replay(entries)
    sys.stdout.writelines(f"{explain(entry)}\n" for entry in entries)
    sys.stdout.write(f"{counted(len(entries), 'decision')} replayed, {len(different)} came out differently\n")
    sys.stderr.writelines(f"{error}\n" for error in damaged)
    return 2 if damaged else 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
