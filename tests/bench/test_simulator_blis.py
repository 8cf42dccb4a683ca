"""The comparison with BLIS: its step time, its trace file, and the simulator set up as it is.

The step times were computed by BLIS's own `TrainedPhysicsModel` at f90a1e3a.
"""

import csv
from pathlib import Path

import pytest
from benchmarks.simulator.blis import (
    TICK,
    BlisPlan,
    BlisWork,
    Latency,
    TrainedPhysics,
    compared,
    simulated,
    write_trace,
)

from paceline_planner.steptime import StepWork
from paceline_simulator.traces import TraceRequest
from paceline_workers.engine.scheduling import Chunk, Request
from paceline_workers.messages import Sampling

BETA = (
    0.152128,
    0.0,
    1.36252915,
    0.752037,
    32.09546717,
    4.41684444,
    126.024825,
    481.8613888,
    0.0,
    1.94710771,
    0.752037,
)
CLOCK = TrainedPhysics(BETA, 32, 4096, 1024, 14_336, 989.5e6, 3.35e6)


def chunk(prompt: int, start: int, count: int) -> Chunk:
    tokens = [10] * max(prompt, start + count)
    request = Request("r", prompt, tokens, 100, Sampling(temperature=0.0), 0.0)
    return Chunk(request, start, count, start + count >= prompt)


@pytest.mark.parametrize(
    ("chunks", "ticks"),
    [
        ([chunk(1000, 1000, 1)], 6911),
        ([chunk(2048, 0, 2048)], 11737),
        ([chunk(3000, 2000, 1000)], 9262),
        ([chunk(500, 510, 1), chunk(700, 799, 1), chunk(3000, 2048, 952), chunk(1500, 0, 1093)], 11783),
        ([chunk(1000 + 10 * n, 1000 + 11 * n, 1) for n in range(64)], 13683),
    ],
)
def test_a_step_takes_as_many_microseconds_as_in_blis(chunks: list[Chunk], ticks: int) -> None:
    assert CLOCK.ticks(BlisPlan(tuple(chunks)).work) == ticks


def test_a_step_that_only_decodes_needs_nothing_that_the_simulator_does_not_know() -> None:
    assert CLOCK.seconds(StepWork(sequences=8, kv_tokens=9000)) == CLOCK.seconds(BlisWork(0, 0.0, 8, 9000))


def test_a_trace_has_a_row_for_each_request_in_whole_ticks(tmp_path: Path) -> None:
    header, data = tmp_path / "trace.yaml", tmp_path / "trace.csv"
    write_trace([TraceRequest(3 * TICK, 700, 20), TraceRequest(1.0, 30, 1)], header, data)
    rows = list(csv.DictReader(data.open()))
    assert [(row["request_id"], row["arrival_time_us"], row["send_time_us"]) for row in rows] == [
        ("0", "3", "3"),
        ("1", "1048576", "1048576"),
    ]
    assert [(row["input_tokens"], row["output_tokens"]) for row in rows] == [("700", "20"), ("30", "1")]
    assert "trace_version: 2" in header.read_text()


def test_a_request_alone_takes_its_steps_and_nothing_else() -> None:
    (found,), facts = simulated(CLOCK, [TraceRequest(TICK, 3000, 3)], 1)
    first = CLOCK.ticks(BlisPlan((chunk(3000, 0, 2048),)).work) + CLOCK.ticks(BlisPlan((chunk(3000, 2048, 952),)).work)
    rest = sum(CLOCK.ticks(BlisPlan((chunk(3000, 3000 + n, 1),)).work) for n in (0, 1))
    assert found == Latency(first, first + rest)
    assert (facts["preemptions"], facts["waited_outside"]) == (0, 0)


def test_requests_go_to_replicas_in_turn() -> None:
    found, _ = simulated(CLOCK, [TraceRequest(n * TICK, 2048, 1) for n in range(1, 5)], 4)
    assert len(set(found)) == 1


def test_the_median_request_counts_and_the_worst_is_named() -> None:
    ours, theirs = [Latency(100, 200), Latency(100, 200), Latency(150, 300)], [Latency(100, 200)] * 3
    rows, details = compared("run", ours, theirs)
    assert [row.value for row in rows] == [0, 0]
    assert details["ttft"] == {"differing": 1, "largest_percent": 50, "p50": 100, "p99": 100}
