"""Comparing engines round by round, and how the engine benchmark's processes answer."""

import json
import sys
from pathlib import Path

import pytest
from benchmarks.engine import served
from benchmarks.engine.lines import Run, Stamp, run
from benchmarks.engine.peers import Engine
from benchmarks.engine.rounds import Work, agreeing, compared
from benchmarks.engine.run_paceline import summed
from benchmarks.harness import rotated
from benchmarks.peers import Environment

from paceline_workers.messages import Tokens

WORK = Work("decode", 2, 4, 11)
ECHO = """
import json, sys
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    job = json.loads(line)
    texts = [prompt[: job["new"]] for prompt in job["prompts"]]
    print(json.dumps({"first_s": 1.0, "rest_s": 2.0, "rest_cpu_s": 3.0, "texts": texts}), flush=True)
"""


def test_every_engine_begins_a_round_in_its_turn() -> None:
    assert [rotated(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]
    assert sorted(rotated(["a", "b", "c"], 2)) == ["a", "b", "c"]


def test_prompts_differ_from_round_to_round_and_from_each_other_but_not_from_run_to_run() -> None:
    assert WORK.prompts(1) == WORK.prompts(1)
    assert len({tuple(prompt) for seed in range(3) for prompt in WORK.prompts(seed)}) == 6


def test_decoding_speed_leaves_first_tokens_out_and_prefill_speed_counts_prompts() -> None:
    taken = Run(first_s=0.5, rest_s=2.0, rest_cpu_s=0.0, texts=[])
    assert WORK.speed(taken) == 2 * 10 / 2.0
    assert Work("prefill", 2, 4, 1).speed(taken) == 2 * 4 / 0.5


def test_ratios_are_taken_within_a_round_so_that_a_slow_round_of_the_machine_moves_none() -> None:
    rows = compared(WORK, {"ours": [10.0, 1.0, 12.0], "theirs": [5.0, 0.5, 6.0]}, {"theirs": 1.8})
    assert [(row.value, row.peer, row.passed) for row in rows] == [(10.0, 5.0, None), (2.0, None, True)]
    assert rows[1].spread == 0.0


def test_a_ratio_below_its_bar_fails_and_one_without_a_bar_does_neither() -> None:
    speeds = {"ours": [1.0], "a": [2.0], "b": [4.0]}
    rows = [row for row in compared(WORK, speeds, {"a": 0.9}) if row.unit == "ratio"]
    assert [(row.value, row.passed) for row in rows] == [(0.5, False), (0.25, None)]


def test_texts_are_counted_that_are_those_of_the_last_engine() -> None:
    texts = {"a": [[1, 2], [3, 4]], "b": [[1, 2], [3, 5]], "c": [[1, 2], [3, 4]]}
    assert agreeing(texts) == {"a": 2, "b": 1, "c": 2}


def test_a_run_begins_to_decode_when_the_last_sequence_has_its_first_token() -> None:
    told = [
        (Stamp(1.0, 0.1), Tokens("x", 0, [7])),
        (Stamp(2.0, 0.2), Tokens("y", 0, [8])),
        (Stamp(2.0, 0.2), Tokens("x", 1, [9], finish="length")),
        (Stamp(5.0, 0.7), Tokens("y", 1, [6], finish="length")),
    ]
    taken = summed(Stamp(0.5, 0.0), told, ["x", "y"])
    assert (taken.first_s, taken.rest_s, taken.texts) == (1.5, 3.0, [[7, 9], [8, 6]])
    assert taken == run(Stamp(0.5, 0.0), Stamp(2.0, 0.2), Stamp(5.0, 0.7), [[7, 9], [8, 6]])


def test_a_refused_sequence_fails_the_run_with_the_reason() -> None:
    with pytest.raises(RuntimeError, match="too long"):
        summed(Stamp(0.0, 0.0), [(Stamp(1.0, 0.0), Tokens("x", 0, [], finish="error", error="too long"))], ["x"])


def test_an_engine_in_a_process_answers_job_after_job() -> None:
    engine = Engine([sys.executable, "-c", ECHO])
    try:
        assert engine.run([[1, 2, 3], [4, 5, 6]], 2).texts == [[1, 2], [4, 5]]
        assert engine.run([[1, 2, 3]], 1) == Run(1.0, 2.0, 3.0, [[1]])
    finally:
        engine.close()


def test_an_engine_that_ends_says_so() -> None:
    with pytest.raises(EOFError, match="has ended with 3"):
        Engine([sys.executable, "-c", "raise SystemExit(3)"])


def test_an_environment_lies_in_the_cache_and_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    environment = Environment("peer", ("one==1", "two"), "a while")
    environment.folder.mkdir(parents=True)
    (environment.folder / "packages.txt").write_text("one==1\ntwo")
    assert environment.folder == tmp_path / "paceline" / "peers" / "peer"
    assert environment.python() == str(environment.folder / "bin" / "python")


def test_all_loads_share_the_first_tokens_and_nothing_else() -> None:
    loads = [served.Load.of(seed) for seed in (0, 1)]
    prompts = [tuple(prompt) for load in loads for prompt in load.prompts]
    assert len({prompt[: served.SHARED] for prompt in prompts}) == 1
    assert len({prompt[served.SHARED :] for prompt in prompts}) == 2 * served.STREAMS
    assert loads[0].arrivals == sorted(loads[0].arrivals)
    assert loads[0].arrivals[0] == 0.0 != loads[0].arrivals[1]
    assert json.loads(json.dumps(loads[0].prompts)) == loads[0].prompts
