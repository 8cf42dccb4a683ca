"""The simulation that the scheduler's order is judged by: everybody ends, and ordering shows where lengths differ."""

import gzip
import json
from pathlib import Path

import pytest
from benchmarks import traces
from benchmarks.scheduling import host
from benchmarks.scheduling.policies import FCFS, ORACLE, OURS, SchedulingVariant
from benchmarks.scheduling.runs import Outcome, h100, simulate, unloaded

from paceline_simulator.traces import BLOCK, TraceRequest


def run(calls: list[TraceRequest], variant: SchedulingVariant, rate: float = 1.0) -> Outcome:
    return simulate(calls, h100(BLOCK, 1.0, variant), rate, length_known=variant.length_known)


def mixed(count: int) -> list[TraceRequest]:
    """A long prompt, then short ones, all at once."""
    lengths = [60 * BLOCK, *[BLOCK] * (count - 1)]
    return [
        TraceRequest(0.01 * n, length, 20, tuple(range(1000 * n, 1000 * n + 60))) for n, length in enumerate(lengths)
    ]


def test_every_call_has_its_first_token_and_ends() -> None:
    found = run(mixed(12), OURS, 1.0)
    assert len(found.ttft) == 12
    assert found.ttft == sorted(found.ttft)
    assert found.prefilled == 60 * BLOCK + 11 * BLOCK


def test_a_call_alone_takes_the_time_of_an_unloaded_machine() -> None:
    calls = [TraceRequest(0.0, BLOCK, 5, (1,))]
    assert run(calls, FCFS, 1.0).mean == pytest.approx(unloaded(calls, h100(BLOCK)))


def test_short_prompts_pass_a_long_one_and_it_is_hardly_later() -> None:
    first, ours = (run(mixed(12), way, 1.0) for way in (FCFS, OURS))
    assert ours.mean < 0.5 * first.mean
    assert ours.ttft[-1] <= 1.5 * first.ttft[-1]


def test_an_oracle_is_no_later_in_the_mean() -> None:
    ours, oracle = (run(mixed(12), way, 1.0) for way in (OURS, ORACLE))
    assert oracle.mean <= ours.mean


def test_the_same_calls_give_the_same_outcome() -> None:
    assert run(mixed(9), OURS, 2.0) == run(mixed(9), OURS, 2.0)


def test_calls_of_one_instant_are_spread_and_equal_blocks_are_equal_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        {"t_s": at, "prompt_tokens": 600, "output_tokens": 3, "hash_ids": [7, n]}
        for n, at in enumerate([0.0, 0.0, 4.0])
    ]
    with gzip.open(tmp_path / "mooncake_conversation.jsonl.gz", "wt") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    monkeypatch.setenv(traces.VARIABLE, str(tmp_path))
    calls = traces.mooncake(3)
    assert [call.at for call in calls] == [0.0, 2.0, 4.0]
    assert calls[1].tokens(1) == [7] * BLOCK + [1] * 88


def test_without_a_folder_of_traces_the_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(traces.VARIABLE, raising=False)
    with pytest.raises(SystemExit, match=traces.VARIABLE):
        traces.azure(1)


def test_the_benchmark_of_a_step_keeps_the_engine_full() -> None:
    found = host.measure(3)
    assert len(found.steps) == len(found.masks) == 3
    assert len(found.core.running) > 0.9 * host.RUNNING
    assert found.core.counters.preemptions > 0
    assert found.structured > 3 * host.RUNNING // 4
