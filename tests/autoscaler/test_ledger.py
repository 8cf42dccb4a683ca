"""Which decisions a ledger keeps, and what it gives back of them."""

import logging
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tests.autoscaler.factories import NOW, demand, goal, observation, view
from tests.autoscaler.ledgers import ALL, VOLUME, burst_in, entries_in, keep

from paceline_autoscaler.output import ledger as module
from paceline_autoscaler.output.ledger import Ledger, LedgerQuery
from paceline_autoscaler.output.ledger_files import LedgerFiles
from paceline_autoscaler.output.replay import replay


@pytest.fixture(scope="module")
def burst(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return burst_in(tmp_path_factory.mktemp("ledger"))


def test_a_ledger_replays_byte_for_byte(burst: Path) -> None:
    entries = entries_in(burst)
    assert len(entries) > 10
    assert replay(entries) == []


def test_changes_are_written_holds_are_folded_and_keyframes_come_every_minute(burst: Path) -> None:
    entries = entries_in(burst)
    assert len(entries) < 60
    assert sum(entry.held + 1 for entry in entries) + 60 >= 300
    for before, entry in pairwise(entries):
        if entry.kind == "keyframe":
            assert entry.at - before.at >= module.KEYFRAME_S
        else:
            alike = module.same_kind(before.decision, entry.decision)
            assert not (alike and before.observation.supply == entry.observation.supply)


def test_a_quiet_service_has_a_keyframe_in_ten_minutes_and_a_busy_one_each_minute() -> None:
    kept = {}
    for name in ("quiet", "busy"):
        ledger = Ledger()
        for minute in range(31):
            replicas = tuple(replace(each, age_s=60.0 * minute) for each in view().replicas)
            rate = 0.5 + 0.001 * minute if name == "busy" else 0.5
            seen = observation(now=NOW + 60 * minute, demand=demand(rate), pools=(view(replicas=replicas),))
            keep(ledger, seen)
        kept[name] = [(entry.kind, (entry.at - NOW) / 60) for entry in reversed([*ledger.newest(ALL)])]
    assert kept["quiet"] == [("change", 0), ("keyframe", 10), ("keyframe", 20), ("keyframe", 30)]
    assert kept["busy"] == [("change", 0), *(("keyframe", minute) for minute in range(1, 31))]


def test_holds_of_one_kind_are_counted() -> None:
    ledger = Ledger()
    for second in range(30):
        keep(ledger, observation(now=NOW + second))
    entry = keep(ledger, observation(now=NOW + 30, demand=demand(4.0)))
    assert entry is not None
    assert (entry.kind, entry.held) == ("change", 29)


def test_a_change_of_ready_replicas_is_written_though_the_decision_is_of_the_same_kind() -> None:
    ledger = Ledger()
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
    ledger = Ledger()
    for name in ("a", "b", "a"):
        keep(ledger, observation(goal=goal(service=f"default/{name}")))
    assert [entry.service for entry in ledger.newest(ALL)] == ["default/b", "default/a"]
    assert [entry.service for entry in ledger.newest_of("default/a", ALL)] == ["default/a"]
    assert len([*ledger.newest(LedgerQuery(limit=1))]) == 1


def test_a_query_takes_the_newest_of_a_kind_since_a_time(burst: Path) -> None:
    written = entries_in(burst)[::-1]
    ledger = Ledger(LedgerFiles(burst.parent, VOLUME))
    changes = [entry for entry in written if entry.kind == "change"]
    assert [*ledger.newest_of("default/chat", ALL)] == written
    assert [*ledger.newest_of("default/chat", LedgerQuery(3, kind="change"))] == changes[:3]
    assert [*ledger.newest_of("default/chat", LedgerQuery(500, since=changes[5].at, kind="change"))] == changes[:6]
    assert [*ledger.newest_of("default/none", ALL)] == []


def test_a_restarted_ledger_reads_what_an_earlier_process_wrote_and_its_first_entry_is_a_change(tmp_path: Path) -> None:
    path = burst_in(tmp_path)
    written = entries_in(path)
    with path.open("ab") as file:
        file.write(b"half a li")
    heir = Ledger(LedgerFiles(tmp_path, VOLUME))
    entry = keep(heir, observation(now=written[-1].at + 1))
    assert entry is not None
    assert (entry.kind, entry.held) == ("change", 0)
    assert [*heir.newest_of("default/chat", LedgerQuery(2))] == [entry, written[-1]]


def test_another_service_of_the_same_name_has_nothing_of_the_deleted_one(tmp_path: Path) -> None:
    ledger = Ledger(LedgerFiles(tmp_path, VOLUME))
    keep(ledger, observation())
    ledger.delete("default/chat")
    assert [*ledger.newest_of("default/chat", ALL), *ledger.newest(ALL), *tmp_path.iterdir()] == []
    entry = keep(ledger, observation(now=NOW + 1))
    assert entry is not None
    assert entry.kind == "change"


def test_after_another_autoscaler_decided_the_next_entry_is_a_change() -> None:
    ledger = Ledger()
    keep(ledger, observation())
    ledger.forget("default/chat")
    entry = keep(ledger, observation(now=NOW + 1))
    assert entry is not None
    assert entry.kind == "change"


def test_memory_is_bounded_but_has_the_last_entry_of_every_service() -> None:
    ledger = Ledger()
    keep(ledger, observation(goal=goal(service="default/calm")))
    for second in range(module.MAX_IN_MEMORY + 20):
        keep(ledger, observation(now=NOW + 700 * second))
    assert len([*ledger.newest(ALL)]) == module.MAX_IN_MEMORY
    assert len([*ledger.newest_of("default/calm", ALL)]) == 1


def test_a_directory_that_cannot_be_written_is_reported_once_and_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "file").touch()
    ledger = Ledger(LedgerFiles(tmp_path / "file" / "ledger", VOLUME))
    for name in ("a", "b"):
        assert keep(ledger, observation(goal=goal(service=f"default/{name}"))) is not None
    assert (
        len([*ledger.newest(ALL)]) == len([record for record in caplog.records if "not written" in record.message]) + 1
    )
    (tmp_path / "file").unlink()
    for name in ("a", "b"):
        keep(ledger, observation(now=NOW + 700, goal=goal(service=f"default/{name}")))
    assert [record.message for record in caplog.records if "no longer" in record.message] != []
    assert len([*ledger.newest_of("default/a", ALL)]) == 2
