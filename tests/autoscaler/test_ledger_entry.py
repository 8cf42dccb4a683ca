"""Lines of a ledger: what is written is read back bit for bit, and damage is named."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.autoscaler.factories import NOW, decide, demand, goal, observation, view
from tests.autoscaler.ledgers import entry_of

from paceline_autoscaler.output.ledger_entry import (
    LedgerEntry,
    decode,
    digest_of,
    encode,
    entry_json,
    packed,
    unpacked,
)
from paceline_autoscaler.state import LearnedState, State
from paceline_autoscaler.types import Observation, RejectedCount, Replica
from paceline_core.errors import InvalidInput
from paceline_core.kube import StartStage
from paceline_core.registry.enums import Direction, ReplicaState

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
CELLS = FLOATS | st.integers(-3, 3) | st.booleans() | st.none() | st.text(max_size=3)
ROWS = st.fixed_dictionaries({"a": CELLS, "b": st.fixed_dictionaries({"c": CELLS})}, optional={"d": CELLS})
VALUES = st.recursive(
    CELLS | st.lists(ROWS, min_size=3, max_size=6),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=2), inner, max_size=4),
)


def lines_of(entry: LedgerEntry) -> list[bytes]:
    records, line = encode(entry)
    return [*(record.line for record in records), line]


def decoded(lines: list[bytes]) -> list[LedgerEntry | InvalidInput]:
    return list(decode(iter(lines), "ledger.jsonl"))


@given(VALUES)
def test_columns_are_the_same_rows(value: Any) -> None:
    assert json.dumps(unpacked(packed(value)), sort_keys=True) == json.dumps(value, sort_keys=True)


@given(st.lists(FLOATS, min_size=7, max_size=7), st.integers(0, 6))
def test_every_float_is_read_back_bit_for_bit(values: list[float], ready: int) -> None:
    replicas = tuple(
        replace(each, age_s=values[n % 7]) for n, each in enumerate(view(ready=ready, starting=2).replicas)
    )
    seen = observation(
        now=abs(values[0]) % 1e10,
        goal=goal(start_prior_s=values[1], drain_limit_s=values[2]),
        pools=(view(replicas=replicas),),
        demand=demand(0.5, oldest_s=values[3], output_tokens=values[4]),
    )
    state = State("slo", LearnedState(at=values[5], drains_s=(values[6],)))
    entry = replace(entry_of(observation()), observation=seen, state=state)
    (read,) = decoded(lines_of(entry))
    assert read == entry
    assert isinstance(read, LedgerEntry)
    assert lines_of(read) == lines_of(entry)
    signs = [(math.copysign(1, one.age_s), one.age_s) for one in replicas]
    assert [(math.copysign(1, one.age_s), one.age_s) for one in read.observation.pools[0].replicas] == signs


def test_an_entry_refers_to_its_spec_and_knowledge_and_leaves_defaults_out() -> None:
    (spec, knowledge), line = encode(entry_of(observation(goal=goal(idle_after_s=300.0))))
    written = json.loads(line)
    assert (spec.record, spec.digest) == ("spec", written["spec"])
    assert (knowledge.record, knowledge.digest) == ("knowledge", written["knowledge"])
    assert spec.content["idle_after_s"] == 300.0
    assert "goal" not in written["observation"]
    assert not {"pause_until", "budget_gpus"} & spec.content.keys()
    assert not {"endpoints_lost", "state_unread"} & written["observation"].keys()


def test_the_same_spec_has_the_same_digest_and_another_one_has_not() -> None:
    one, same, other = (
        encode(entry_of(seen))[0][0].digest
        for seen in (
            observation(),
            observation(now=NOW + 9, demand=demand(2.0)),
            observation(goal=goal(drain_limit_s=31.0)),
        )
    )
    assert one == same != other


def test_an_entry_for_programs_is_complete_and_without_inputs_it_is_short() -> None:
    entry = entry_of(observation())
    whole, short = json.loads(entry_json(entry)), json.loads(entry_json(entry, inputs=False))
    assert whole["observation"]["goal"]["service"] == short["service"] == "default/chat"
    assert short.keys() == {"time", "at", "service", "kind", "held", "decision"}
    assert (short["time"], short["at"]) == ("2027-01-15T08:00:00Z", NOW)
    assert short["decision"] == whole["decision"]
    assert short["decision"]["gaps"] == []


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"nonsense",
        b"{}",
        b"[]",
        b'{"kind": "change"}',
        b'{"observation": {"goal": 1}}',
        b'{"record": "spec", "digest": "0"}',
        b'{"record":"spec","digest":"0","content":{}}',
    ],
)
def test_a_line_that_is_no_entry_is_named_and_the_others_are_read(line: bytes) -> None:
    entry = entry_of(observation())
    *records, written = lines_of(entry)
    first, second, third = decoded([*records, written, line, written])
    assert first == third == entry
    assert isinstance(second, InvalidInput)
    assert str(second).startswith("ledger.jsonl:4: is not an entry of a ledger: ")


@pytest.mark.parametrize(
    "broken",
    [
        {"same": {}, "each": {"a": 1}},
        {"same": 1, "each": {}},
        {"same": {}, "each": {"a": [1], "b": []}},
        {"same": {}, "each": {"a": [1]}, "some": {"b": [1]}},
        {"same": {}, "each": {"a": [1]}, "some": {"b": {"1": 1}}},
    ],
)
def test_columns_that_are_none_are_damage(broken: dict[str, Any]) -> None:
    *records, line = lines_of(entry_of(observation()))
    document = json.loads(line)
    document["observation"]["pools"] = broken
    (error,) = decoded([*records, json.dumps(document).encode()])
    assert isinstance(error, InvalidInput)


def test_an_entry_whose_spec_is_missing_or_forged_is_damage() -> None:
    (record, knowledge), line = encode(entry_of(observation()))
    (missing,) = decoded([knowledge.line, line])
    assert isinstance(missing, InvalidInput)
    assert f"refers to the spec {record.digest}, which is not in the lines before it" in str(missing)
    forged = record.line.replace(b'"step_tokens":2048', b'"step_tokens":2049')
    assert digest_of(json.loads(forged)["content"]) != record.digest
    assert [str(error).partition(": ")[0] for error in decoded([knowledge.line, forged, line])] == [
        "ledger.jsonl:2",
        "ledger.jsonl:3",
    ]


def seen_by(count: int) -> Observation:
    return observation(pools=(view(ready=count),))


def test_an_entry_of_many_replicas_names_its_fields_once() -> None:
    sizes = [len(encode(entry_of(seen_by(count)))[1]) for count in (8, 24)]
    assert (sizes[1] - sizes[0]) / 16 < 60
    assert encode(entry_of(seen_by(24)))[1].count(b"queued_tokens") == 1


def starts(*stages: StartStage | None) -> Observation:
    """Twenty ready replicas, and one that starts for each stage; it has a node after the first one."""
    pool = view(ready=20)
    replicas = [replace(replica, node="node-1") for replica in pool.replicas]
    for number, stage in enumerate(stages):
        node = "" if stage is StartStage.SCHEDULE else "node-1"
        replicas.append(Replica(f"starting-{number}", ReplicaState.STARTING, 5.0, node, stage))
    return observation(pools=(replace(pool, desired=len(replicas), replicas=tuple(replicas)),))


def test_a_field_that_few_replicas_have_is_written_for_these_alone() -> None:
    entry = entry_of(starts(StartStage.SCHEDULE, StartStage.PULL, StartStage.PULL, StartStage.LOAD))
    line = encode(entry)[1]
    assert line.count(b"age_s") == line.count(b'"stage"') == 1
    assert line.count(b'"pull"') == 2
    assert decoded(lines_of(entry)) == [entry]


def test_the_stages_of_starts_lengthen_an_entry_by_less_than_a_twentieth() -> None:
    without, with_stages = (len(encode(entry_of(starts(*[stage] * 4)))[1]) for stage in (None, StartStage.LOAD))
    assert without < with_stages < 1.05 * without


def test_the_ledger_of_an_earlier_release_is_read_and_decides_again() -> None:
    """A burst on real processes, recorded when rejected numbers of replicas were sentences."""
    found = decoded((Path(__file__).parent / "ledger_0_1.jsonl").read_bytes().splitlines())
    entries = [entry for entry in found if isinstance(entry, LedgerEntry)]
    assert len(entries) == len(found) == 14
    assert [entry.decision.direction for entry in entries].count(Direction.UP) == 3
    assert all(decide(entry.observation, entry.state)[0].sentence for entry in entries)
    assert [rejected.sentence for entry in entries for rejected in entry.decision.rejected][:3] == [
        "1: 0.13 replica-s/s too little to catch up in 35 s",
        "2: 0.22 replica-s/s too little to catch up in 35 s",
        "2: peak 1.75 of the last 50 s would not fit capacity 1.70",
    ]


def test_a_rejected_hold_of_an_earlier_release_is_the_number_that_was_ordered() -> None:
    *records, line = lines_of(entry_of(observation(pools=(view(ready=3),))))
    document = json.loads(line)
    document["decision"]["rejected"] = ["hold: the error budget burns"]
    (entry,) = decoded([*records, json.dumps(document).encode()])
    assert isinstance(entry, LedgerEntry)
    assert entry.decision.rejected == (RejectedCount(3, None, "the error budget burns"),)


def test_fields_of_a_later_release_are_ignored() -> None:
    entry = entry_of(observation())
    *records, line = lines_of(entry)
    document = json.loads(line)
    for part in (document["observation"], document["observation"]["pools"][0], document["decision"]):
        part["later"] = {"a": [1.0]}
    assert decoded([*records, json.dumps(document).encode()]) == [entry]
