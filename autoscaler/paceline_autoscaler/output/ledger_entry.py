"""The lines of a ledger's file: entries, and the records that entries refer to. Pure.

An entry has everything that its decision was made from, the state before it, the observation and the knowledge, so that
the decision can be computed again. Inputs that many entries have in common, the ScalingSpec and the knowledge, are
records of their own: a kind, a content and the content's digest. A file has each record once, before the first entry
that refers to it.

Entries are short: fields with their default are left out, and four or more objects are written as columns,
`{"same": {"slots": 64}, "each": {"worker": [...], "running": [...]}}`; a field that only some of them have is in
`"some": {"stage": {"3": "pull"}}`, by the number of the object. Floats are read back bit for bit.

Entries of earlier releases are read: fields that they lack have their default, and what is now data may be a sentence.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import PlainSerializer, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from paceline_autoscaler.policies import dump_state, load_state
from paceline_autoscaler.state import Knowledge, State
from paceline_autoscaler.types import Decision, Observation, PoolDecision
from paceline_core.clock import rfc3339
from paceline_core.errors import InvalidInput

EntryKind = Literal["change", "keyframe"]
RECORD_START = b'{"record":'
MIN_ROWS = 4


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One decision with its inputs. `held`: the number of decisions of the same kind since the entry before."""

    kind: EntryKind
    held: int
    state: Annotated[State, PlainSerializer(dump_state), PlainValidator(load_state)]
    knowledge: Knowledge
    observation: Observation
    decision: Decision

    @property
    def service(self) -> str:
        return self.observation.goal.service

    @property
    def at(self) -> float:
        """When, in Unix seconds; no two entries of a service have the same."""
        return self.observation.now

    @property
    def time(self) -> str:
        """When, RFC 3339 UTC."""
        return rfc3339(datetime.fromtimestamp(self.at, UTC))


@dataclass(frozen=True, slots=True)
class LedgerRecord:
    """An input that entries refer to by its digest."""

    record: str
    digest: str
    content: Mapping[str, Any]

    @property
    def line(self) -> bytes:
        return to_json({"record": self.record, "digest": self.digest, "content": self.content})


Records = dict[tuple[str, str], Mapping[str, Any]]
"""Contents by kind and digest."""
_ENTRY = TypeAdapter(LedgerEntry)
_RECORD = TypeAdapter(LedgerRecord)
_DECISION = TypeAdapter(Decision)
_POOLS = TypeAdapter(tuple[PoolDecision, ...])


def digest_of(content: Mapping[str, Any]) -> str:
    """64 bits of SHA-256 over the content's JSON."""
    return hashlib.sha256(to_json(content)).hexdigest()[:16]


def encode(entry: LedgerEntry) -> tuple[tuple[LedgerRecord, ...], bytes]:
    """The records that an entry refers to, and the entry's line without its line end."""
    document = _ENTRY.dump_python(entry, mode="json", exclude_defaults=True)
    contents = {"spec": document["observation"].pop("goal"), "knowledge": document.pop("knowledge")}
    records = tuple(LedgerRecord(kind, digest_of(content), content) for kind, content in contents.items())
    references = {record.record: record.digest for record in records}
    head = {"kind": document.pop("kind"), "held": document.pop("held"), **references}
    return records, to_json(head | packed(document))


def decode(lines: Iterator[bytes], origin: str) -> Iterator[LedgerEntry | InvalidInput]:
    """The entries of a file, in order; a damaged line becomes an error that names it as `origin:number`."""
    records: Records = {}
    for number, line in enumerate(lines, start=1):
        try:
            if line.startswith(RECORD_START):
                add_record(line, records)
            else:
                yield decode_entry(line, records)
        except ValueError as error:
            yield InvalidInput(f"{origin}:{number}", f"is not an entry of a ledger: {_reason(error)}")


def add_record(line: bytes, records: Records) -> None:
    """Note a record; raises ValueError if the line is damaged or the content is not that of the digest."""
    record = _RECORD.validate_json(line)
    if digest_of(record.content) != record.digest:
        raise ValueError(f"the content of {record.record} {record.digest} is another one")
    records[record.record, record.digest] = record.content


def decode_entry(line: bytes, records: Records) -> LedgerEntry:
    """The entry of a line; raises ValueError if it is damaged or refers to a record that is not there."""
    document = from_json(line)
    if not isinstance(document, dict) or not isinstance(document.get("observation"), dict):
        raise ValueError("it has no observation")  # noqa: TRY004 - a damaged line, like any other
    spec, knowledge = (_referred(document, kind, records) for kind in ("spec", "knowledge"))
    document = unpacked(document)
    document["observation"]["goal"] = spec
    if isinstance(decision := document.get("decision"), dict):
        document["decision"] = _with_counts(decision)
    return _ENTRY.validate_python({**document, "knowledge": knowledge})


def _with_counts(decision: dict[str, Any]) -> dict[str, Any]:
    """The decision with `rejected` as data; an earlier release wrote `4: why` or `hold: why`. Raises ValueError."""
    rejected = decision.get("rejected")
    if not isinstance(rejected, list) or not any(isinstance(each, str) for each in rejected):
        return decision
    current = sum(pool.current for pool in _POOLS.validate_python(decision.get("pools")))
    counts = [_count(text, current) if isinstance(text, str) else text for text in rejected]
    return {**decision, "rejected": counts}


def _count(text: str, current: int) -> dict[str, Any]:
    number, _, why = text.partition(": ")
    return {"replicas": int(number) if number.isdecimal() else current, "dollars_per_hour": None, "why": why}


def _referred(document: dict[str, Any], kind: str, records: Records) -> Mapping[str, Any]:
    digest = str(document.pop(kind, ""))
    if (kind, digest) not in records:
        raise ValueError(f"it refers to the {kind} {digest}, which is not in the lines before it")
    return records[kind, digest]


def entry_json(entry: LedgerEntry, *, inputs: bool = True) -> bytes:
    """An entry for programs, complete by itself; `time`, and without `inputs` the decision alone."""
    document = _ENTRY.dump_python(entry, mode="json", exclude=None if inputs else {"state", "knowledge", "observation"})
    return to_json({"time": entry.time, "at": entry.at, "service": entry.service, **document})


def decision_json(decision: Decision) -> bytes:
    """What replaying compares, byte for byte."""
    return _DECISION.dump_json(decision)


def packed(value: Any) -> Any:
    """JSON with its longer lists of like objects as columns."""
    if isinstance(value, dict):
        return {name: packed(part) for name, part in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) < MIN_ROWS or not all(isinstance(row, dict) for row in value):
        return [packed(row) for row in value]
    columns = {name: [row[name] for row in value] for name in value[0] if all(name in row for row in value)}
    # repr tells 0 from 0.0 and -0.0
    same = {name: column[0] for name, column in columns.items() if len({repr(cell) for cell in column}) == 1}
    each = {name: packed(column) for name, column in columns.items() if name not in same}
    if not each:
        return [packed(row) for row in value]
    names = dict.fromkeys(name for row in value for name in row if name not in columns)
    some = {name: {str(n): packed(row[name]) for n, row in enumerate(value) if name in row} for name in names}
    return {"same": same, "each": each} | ({"some": some} if some else {})


def unpacked(value: Any) -> Any:
    """The inverse of `packed`. Raises ValueError if the columns of a list are none, or differ in length."""
    if isinstance(value, list):
        return [unpacked(row) for row in value]
    if not isinstance(value, dict):
        return value
    parts = {name: unpacked(part) for name, part in value.items()}
    if not {"same", "each"} <= parts.keys() <= {"same", "each", "some"}:
        return parts
    same, each, some = parts["same"], parts["each"], parts.get("some", {})
    if not (_all(dict, [same, each, some]) and _all(list, each.values()) and _all(dict, some.values())):
        raise ValueError("it has columns that are no lists")
    rows = [{**same, **dict(zip(each, row, strict=True))} for row in zip(*each.values(), strict=True)]
    for name, cells in some.items():
        for number, cell in cells.items():
            if int(number) >= len(rows):
                raise ValueError(f"it has the field {name} of an object that is not there")
            rows[int(number)][name] = cell
    return rows


def _all(kind: type, values: Iterable[Any]) -> bool:
    return all(isinstance(value, kind) for value in values)


def _reason(error: ValueError) -> str:
    return error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
