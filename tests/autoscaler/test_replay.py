"""Every written decision can be explained and computed again."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.autoscaler.factories import demand, needed, observation, view
from tests.autoscaler.ledgers import burst_in, entries_in, entry_of

from paceline_autoscaler.output import replay as module
from paceline_autoscaler.output.replay import explain, replay


@pytest.fixture
def burst(tmp_path: Path) -> Path:
    return burst_in(tmp_path)


def test_a_changed_decision_does_not_replay(burst: Path) -> None:
    first, *rest = entries_in(burst)
    forged = replace(first, decision=replace(first.decision, sentence="because"))
    assert replay([forged, *rest]) == [forged]


def test_an_entry_explains_itself_in_a_few_lines() -> None:
    entry = entry_of(observation(demand=replace(demand(3.0), expected=2), pools=(view(),)))
    first, *rest = explain(entry).splitlines()
    assert first == (
        "2027-01-15T08:00:00Z  default/chat  "
        f"1→4: demand 3.00 replica-s/s may need a capacity of {needed(3.0):.2f} in 20 s; 1 ready"
    )
    assert [line.strip() for line in rest] == [
        "reason demand, limit none",
        "not 3 for $12.00 an hour: capacity 2.91",
        "demand in 20 s: p50 3.00, p90 3.00 replica-s/s",
        "missing: gateways",
    ]


def test_the_command_prints_and_checks(burst: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert module.main([str(burst)]) == 0
    assert "0 came out differently" in capsys.readouterr().out
    burst.write_bytes(burst.read_bytes().replace(b'"sentence":"', b'"sentence":"forged ', 1))
    assert module.main([str(burst)]) == 1
    assert "1 came out differently" in capsys.readouterr().out


def test_the_command_names_every_damaged_line_and_reads_the_others(
    burst: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count = len(entries_in(burst))
    with burst.open("ab") as file:
        file.write(b"nonsense\n{}\n")
    assert module.main([str(burst)]) == 2
    printed = capsys.readouterr()
    assert f"{count} decisions replayed, 0 came out differently" in printed.out
    lines = len(burst.read_bytes().splitlines())
    assert [line.split(": ")[0] for line in printed.err.splitlines()] == [f"{burst}:{lines - 1}", f"{burst}:{lines}"]


@pytest.mark.parametrize("arguments", [[], ["/does/not/exist"]])
def test_the_command_refuses_what_it_cannot_read(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert module.main(arguments) == 2
    assert capsys.readouterr().err
