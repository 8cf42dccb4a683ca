"""What the autoscaler decided during a run, from its ledger, and whether each decision comes out the same again.

The ledger lies in the run's directory; it is read before the stack goes down. Known hole: a ledger that was rotated
during the run is read from its current file alone.
"""

from pathlib import Path

from paceline_autoscaler.ledger import DecisionEntry, read, replay
from paceline_cli.bench.observe import DecisionRow, Decisions
from paceline_core.errors import InvalidInput

LEDGER = Path("run") / "ledger.jsonl"


def taken(ledger: Path, service: str, start: float) -> Decisions | None:
    """The decisions about a service since `start` (Unix seconds); None when there is no ledger."""
    try:
        entries = [entry for entry in read(ledger) if entry.service == service and entry.observation.now >= start]
    except InvalidInput:
        return None
    return Decisions(tuple(_row(entry, start) for entry in entries), len(replay(entries)))


def _row(entry: DecisionEntry, start: float) -> DecisionRow:
    decision = entry.decision
    return DecisionRow(
        at=entry.observation.now - start,
        time=entry.time,
        direction=str(decision.direction),
        reason=str(decision.reason),
        limit=str(decision.limit),
        replicas=decision.replicas,
        sentence=decision.sentence,
    )
