"""Every written decision can be read, explained and computed again."""

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.autoscaler.factories import NOW, demand, goal, observation, view
from tests.autoscaler.plant import Plant, goal_of

from paceline_autoscaler.output import decision_log as module
from paceline_autoscaler.output.decision_log import DecisionEntry, DecisionLog, entry_json, explain, read, replay
from paceline_autoscaler.policies import decide
from paceline_autoscaler.types import LearnedState, Observation
from paceline_core.errors import InvalidInput


def keep(ledger: DecisionLog, seen: Observation, state: LearnedState | None = None) -> DecisionEntry | None:
    known = state or LearnedState()
    return ledger.add(known, seen, decide(seen, known)[0])


@pytest.fixture
def burst(tmp_path: Path) -> Path:
    """A ledger of five minutes with a burst in them, one decision a second."""
    plant = Plant(goal_of(), lambda t: 24 if 60 <= t < 120 else 4, seed=1)
    ledger = DecisionLog(tmp_path / "ledger.jsonl")
    for _ in range(300):
        known = plant.state
        seen, decision = plant.second()
        ledger.add(known, seen, decision)
    return tmp_path / "ledger.jsonl"


def test_a_ledger_replays_byte_for_byte(burst: Path) -> None:
    entries = list(read(burst))
    assert len(entries) > 10
    assert replay(entries) == []


def test_what_is_read_is_what_was_written(burst: Path) -> None:
    lines = burst.read_bytes().splitlines()
    assert [entry_json(entry) for entry in read(burst)] == lines


def test_a_changed_decision_does_not_replay(burst: Path) -> None:
    first, *rest = read(burst)
    forged = replace(first, decision=replace(first.decision, sentence="because"))
    assert replay([forged, *rest]) == [forged]


def test_changes_are_written_holds_are_folded_and_keyframes_come_every_minute(burst: Path) -> None:
    entries = list(read(burst))
    assert len(entries) < 60
    assert sum(entry.held + 1 for entry in entries) + 60 >= 300
    for before, entry in pairwise(entries):
        if entry.kind == "keyframe":
            assert entry.observation.now - before.observation.now >= module.KEYFRAME_S
        else:
            alike = module.same_kind(before.decision, entry.decision)
            assert not (alike and before.observation.supply == entry.observation.supply)


def test_holds_of_one_kind_are_counted() -> None:
    ledger = DecisionLog()
    for second in range(30):
        keep(ledger, observation(now=NOW + second))
    entry = keep(ledger, observation(now=NOW + 30, demand=demand(4.0)))
    assert entry is not None
    assert (entry.kind, entry.held) == ("change", 29)


def test_who_is_ready_is_news_though_the_decision_is_of_the_same_kind() -> None:
    ledger = DecisionLog()
    kept = [
        keep(ledger, observation(now=NOW + second, pools=(view(ready=ready, desired=1),)))
        for second, ready in enumerate((1, 1, 0, 0, 1))
    ]
    assert [entry is not None and (entry.kind, entry.held) for entry in kept] == [
        ("change", 0),
        False,
        ("change", 1),
        False,
        ("change", 1),
    ]


def test_services_are_folded_apart_and_found_by_name() -> None:
    ledger = DecisionLog()
    for name in ("a", "b", "a"):
        keep(ledger, observation(goal=goal(service=f"default/{name}")))
    assert [entry.service for entry in ledger.recent()] == ["default/b", "default/a"]
    assert [entry.service for entry in ledger.recent("default/a")] == ["default/a"]
    assert len(ledger.recent(limit=1)) == 1


def test_a_service_that_comes_back_is_news() -> None:
    ledger = DecisionLog()
    keep(ledger, observation())
    ledger.forget("default/chat")
    entry = keep(ledger, observation(now=NOW + 1))
    assert entry is not None
    assert entry.kind == "change"


def test_memory_is_bounded() -> None:
    ledger = DecisionLog()
    for second in range(module.MAX_ENTRIES + 20):
        keep(ledger, observation(now=NOW + 100 * second))
    assert len(ledger.recent(limit=10_000)) == module.MAX_ENTRIES


def test_a_full_file_is_put_aside_and_one_before_it_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"x" * (module.FILE_LIMIT + 1))
    keep(DecisionLog(path), observation())
    assert len(list(read(path))) == 1
    assert (tmp_path / "ledger.jsonl.1").stat().st_size > module.FILE_LIMIT


def test_a_disk_that_takes_nothing_stops_nothing(tmp_path: Path) -> None:
    ledger = DecisionLog(tmp_path / "missing" / "ledger.jsonl")
    assert keep(ledger, observation()) is not None
    assert len(ledger.recent()) == 1


def test_an_entry_explains_itself_in_a_few_lines() -> None:
    entry = keep(DecisionLog(), observation(demand=replace(demand(3.0), expected=2), pools=(view(),)))
    assert entry is not None
    first, *rest = explain(entry).splitlines()
    assert first == (
        "2027-01-15T08:00:00Z  default/chat  "
        "1→5: demand 3.00 replica-s/s and backlog 0.0 replica-s over 55 s need 5; 1 ready"
    )
    assert [line.strip() for line in rest] == [
        "reason demand, limit none",
        "not 4: 0.60 replica-s/s too little to catch up in 35 s",
        "missing: gateways",
    ]


@pytest.mark.parametrize("line", [b"", b"nonsense", b"{}", b'{"kind": "change"}'])
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "ledger.jsonl"
    keep(DecisionLog(path), observation())
    path.write_bytes(path.read_bytes() + line + b"\n")
    with pytest.raises(InvalidInput, match=r"ledger\.jsonl:2: is not an entry"):
        list(read(path))


def test_the_command_prints_and_checks(burst: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert module.main([str(burst)]) == 0
    assert "0 came out differently" in capsys.readouterr().out
    entry = json.loads(burst.read_bytes().splitlines()[0])
    entry["decision"]["sentence"] = "forged"
    burst.write_text(json.dumps(entry) + "\n")
    assert module.main([str(burst)]) == 1


@pytest.mark.parametrize("arguments", [[], ["/does/not/exist"], ["a", "b"]])
def test_the_command_refuses_what_it_cannot_read(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert module.main(arguments) == 2
    assert capsys.readouterr().err


def test_a_restarted_ledger_still_knows_the_newest_entries(burst: Path) -> None:
    written = list(read(burst))
    with burst.open("ab") as file:
        file.write(b"half a li")
    heir = DecisionLog(burst)
    assert heir.recent(limit=module.MAX_ENTRIES) == written[::-1]
    entry = keep(heir, observation(now=written[-1].observation.now + 1))
    assert entry is not None
    assert (entry.kind, entry.held) == ("change", 0)
    assert heir.recent(limit=2) == [entry, written[-1]]


def test_only_the_end_of_a_long_file_is_read_back(burst: Path) -> None:
    written = list(read(burst))
    size = sum(len(entry_json(entry)) + 1 for entry in written[-3:])
    assert module.tail(burst, size + 5) == written[-3:]
    assert module.tail(burst.with_name("none"), size) == []
