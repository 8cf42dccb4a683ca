"""The log of decisions and their inputs, so that every decision can be read and computed again.

An entry is complete: the state before, the observation, the decision. One is written when the decision changes in kind
(direction, reason, limit, gaps, replicas) or in ready replicas, and as a keyframe once a minute; the holds in between
only increase a count. So `replay` computes each written decision from its own line and must get the same bytes.
Run as `python -m paceline_autoscaler.output.decision_log FILE` to read one and check it.
"""

import contextlib
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from paceline_autoscaler.policies import decide
from paceline_autoscaler.types import Decision, LearnedState, Observation
from paceline_core.clock import rfc3339
from paceline_core.errors import InvalidInput
from paceline_core.telemetry import get_logger
from paceline_core.units import counted

KEYFRAME_S = 60.0
MAX_ENTRIES = 512
FILE_LIMIT = 16 << 20
TAIL_LIMIT = 4 << 20
_log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """One line. `held`: the number of decisions of the same kind since the line before."""

    kind: Literal["change", "keyframe"]
    held: int
    state: LearnedState
    observation: Observation
    decision: Decision

    @property
    def service(self) -> str:
        return self.observation.goal.service

    @property
    def time(self) -> str:
        """When, RFC 3339 UTC."""
        return rfc3339(datetime.fromtimestamp(self.observation.now, UTC))


_ENTRY = TypeAdapter(DecisionEntry)
_DECISION = TypeAdapter(Decision)


@dataclass(slots=True)
class _Last:
    at: float
    decision: Decision
    supply: tuple[tuple[int, int], ...]
    folded: int = 0


class DecisionLog:
    """The last entries in memory, and all in a file if one is configured; keeps one older file.

    It remembers what an earlier process wrote at the end of the file, but not what is in the older file.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: deque[DecisionEntry] = deque(tail(path) if path is not None else (), maxlen=MAX_ENTRIES)
        self._last: dict[str, _Last] = {}

    def add(self, state: LearnedState, observation: Observation, decision: Decision) -> DecisionEntry | None:
        """Write a decision or count it as held; `state` is the state that it was made with."""
        service, now = observation.goal.service, observation.now
        last = self._last.get(service)
        alike = last is not None and last.supply == observation.supply and same_kind(last.decision, decision)
        if last is not None and alike and now - last.at < KEYFRAME_S:
            last.folded += 1
            return None
        folded = last.folded if last is not None else 0
        entry = DecisionEntry("keyframe" if alike else "change", folded, state, observation, decision)
        self._last[service] = _Last(now, decision, observation.supply)
        self._entries.append(entry)
        self._write(entry)
        return entry

    def recent(self, service: str | None = None, limit: int = 50) -> list[DecisionEntry]:
        """The newest entries first."""
        found = [entry for entry in reversed(self._entries) if service in (None, entry.service)]
        return found[:limit]

    def forget(self, service: str) -> None:
        """A service is deleted; its next entry, if it is created again, is a change."""
        self._last.pop(service, None)

    def _write(self, entry: DecisionEntry) -> None:
        if self._path is None:
            return
        try:
            if self._path.exists() and self._path.stat().st_size > FILE_LIMIT:
                self._path.replace(self._path.with_suffix(self._path.suffix + ".1"))
            with self._path.open("ab") as file:
                file.write(_ENTRY.dump_json(entry) + b"\n")
        except OSError as error:
            _log.warning("the ledger could not be written", extra={"path": str(self._path), "reason": str(error)})


def same_kind(one: Decision, other: Decision) -> bool:
    """Whether two decisions differ only in numbers and words."""
    first, second = (
        (each.direction, each.reason, each.limit, each.gaps, [(pool.replicas, pool.wish) for pool in each.pools])
        for each in (one, other)
    )
    return first == second


def read(path: Path) -> Iterator[DecisionEntry]:
    """Every entry of a file. Raises InvalidInput naming the line that is not one."""
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read: {error.strerror}") from None
    for number, line in enumerate(lines, start=1):
        try:
            yield _ENTRY.validate_json(line)
        except ValidationError as error:
            raise InvalidInput(f"{path}:{number}", f"is not an entry of a ledger: {error.errors()[0]['msg']}") from None


def tail(path: Path, limit: int = TAIL_LIMIT) -> list[DecisionEntry]:
    """The entries in the last `limit` bytes of a file, oldest first; other lines are skipped."""
    try:
        with path.open("rb") as file:
            file.seek(max(path.stat().st_size - limit, 0))
            lines = file.read().splitlines()[-MAX_ENTRIES:]
    except OSError:
        return []
    found = []
    for line in lines:
        with contextlib.suppress(ValidationError):
            found.append(_ENTRY.validate_json(line))
    return found


def replay(entries: Iterable[DecisionEntry]) -> list[DecisionEntry]:
    """Decide everything again; returns the entries whose decision differs, byte for byte."""
    dump = _DECISION.dump_json
    return [entry for entry in entries if dump(decide(entry.observation, entry.state)[0]) != dump(entry.decision)]


def entry_json(entry: DecisionEntry) -> bytes:
    """One line, without its line end."""
    return _ENTRY.dump_json(entry)


def explain(entry: DecisionEntry) -> str:
    """A few lines for people: when, what, why, what else was possible, what was missing."""
    decision = entry.decision
    lines = [f"{entry.time}  {entry.service}  {decision.sentence}"]
    folded = f"; {counted(entry.held, 'time')} the same before" if entry.held else ""
    lines.append(f"    reason {decision.reason}, limit {decision.limit}{folded}")
    lines += [f"    not {rejected}" for rejected in decision.rejected]
    lines += [f"    missing: {', '.join(decision.gaps)}"] if decision.gaps else []
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Print a ledger and check it; 1 when a decision does not replay, 2 when it cannot be read."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m paceline_autoscaler.output.decision_log FILE\n")
        return 2
    try:
        entries = list(read(Path(arguments[0])))
    except InvalidInput as error:
        sys.stderr.write(f"{error}\n")
        return 2
    different = replay(entries)
    sys.stdout.writelines(f"{explain(entry)}\n" for entry in entries)
    sys.stdout.write(f"{counted(len(entries), 'decision')} replayed, {len(different)} came out differently\n")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
