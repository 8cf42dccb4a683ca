"""What `benchmarks.burst` makes of two reports."""

from typing import Any

import pytest
import yaml
from benchmarks.burst import MANIFEST, alone, edited, faster, in_burst, late, rows, same, story

PHASES = [{"name": "before", "duration": 5.0}, {"name": "burst", "duration": 30.0}, {"name": "after", "duration": 10.0}]


def report(ratios: list[float], ready: list[int], recovery: float | None) -> dict[str, Any]:
    """A report whose 5 s windows had these attainments and whose seconds saw these ready replicas."""
    promise = [{"target": "ttft_p95", "ratio": 0.9}]
    samples = [{"at": float(second), "ready": number} for second, number in enumerate(ready)]
    decision = {"at": 9.0, "direction": "up", "reason": "demand", "sentence": "1→2: more"}
    return {
        "verdict": "missed",
        "void_because": [],
        "cut_streams": 0,
        "recovery_s": recovery,
        "profile": {"phases": PHASES},
        "phases": [{"name": phase["name"], "promise": promise, "ttft": {"n": 1}} for phase in PHASES],
        "overall": {"endings": {"ok": 9}, "send_lateness": {"p99": 0.002}},
        "timeline": [
            {"start": 5.0 * n, "end": 5.0 * n + 5, "offered": 10, "attainment": {"ttft_p95": ratio}}
            for n, ratio in enumerate(ratios)
        ],
        "observation": {
            "replicas": samples,
            "decisions": {"rows": [decision, {**decision, "direction": "hold"}], "different": 0},
            "emulation": {"steps": 100, "p99_at_most": 0.01},
            "host": {"cores": 2, "mean": 0.4, "peak": 0.9},
        },
    }


KEPT = report([1.0, 0.2, 0.0, 0.5, 0.9, 1.0, 1.0, 1.0, 1.0], [1, 1, 2, 3, 3, 2], 20.0)
ALONE = report([1.0, 0.2, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [1, 1, 1], None)


def test_only_windows_within_the_burst_are_of_the_burst() -> None:
    assert in_burst(KEPT) == [0.2, 0.0, 0.5, 0.9, 1.0, 1.0]
    assert late(KEPT) == 1.0
    assert late(ALONE) == 0.0


def test_every_claim_is_a_row_with_its_bar() -> None:
    table = {row.name: row for row in rows(KEPT, ALONE)}
    assert table["worst 5 s of the burst"].passed
    assert table["last third of the burst"].passed
    assert table["last third of the burst, control"].passed
    assert (table["replicas, most"].value, table["replicas given back by the end"].value) == (3, 1)
    assert table["burst's begin to kept again"].value == 20.0
    assert not table["attainment ttft_p95, before"].passed


def test_a_run_that_never_recovers_fails_its_bar() -> None:
    table = {row.name: row for row in rows(ALONE, ALONE)}
    assert "burst's begin to kept again" not in table
    assert table["last third of the burst"].passed is False
    assert table["replicas, most"].passed is False


def test_a_story_holds_changes_and_no_holds() -> None:
    told = story(KEPT)
    assert told["ready"] == [[0, 1], [2, 2], [3, 3], [5, 2]]
    assert told["decisions"] == ["9 s, demand: 1→2: more"]


@pytest.mark.parametrize(
    ("edit", "path", "value"),
    [
        (alone, ("pools", 0, "replicas"), {"min": 1, "max": 1}),
        (faster, ("engine", "emulate", "coldStart"), "5s"),
        (same, ("engine", "emulate", "coldStart"), "20s"),
    ],
)
def test_a_variant_changes_the_service_and_nothing_else(edit: Any, path: tuple[Any, ...], value: Any) -> None:
    text = MANIFEST.read_text()
    before, after = list(yaml.safe_load_all(text)), list(yaml.safe_load_all(edited(text, edit)))
    found = after[0]["spec"]
    for part in path:
        found = found[part]
    assert found == value
    assert after[1:] == before[1:]
