"""The benchmark itself, tried without a GPU: each contestant runs on a small model, and a made-up clock times it."""

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
import torch
from benchmarks.harness import Row
from benchmarks.kernels import decode, drawing, prefill, small
from benchmarks.kernels.__main__ import measure
from benchmarks.kernels.bench import Bench, require_gpu
from benchmarks.kernels.contexts import Batch, contexts
from benchmarks.kernels.rivals import flex, sdpa
from benchmarks.kernels.timing import Contestant, ready, repeats, rounds
from tests.kernels.benched import MadeUp, benched
from tests.kernels.conftest import CUDA

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bench(device: torch.device) -> Bench:
    return benched(device, MadeUp())


def named(rows: Iterable[Row]) -> dict[str, Row]:
    return {f"{row.name} ({row.unit})": row for row in rows}


def test_all_contestants_of_decode_agree_and_give_rows(bench: Bench) -> None:
    even = Batch("1 x 32", (32,), share=0.9, most_us=44)
    ragged = (Batch("long and short", (32, 16)), Batch("even", (24, 24)))
    rows = named(decode.measure(bench, [even], ragged))
    own = rows["decode, 1 x 32 (us)"]
    assert own.value == pytest.approx(1)
    assert own.bar is not None
    assert own.bar.limit == pytest.approx(44)
    # 32 tokens of 1 head with 16 numbers of two bytes twice: 2,048 bytes in 1 us
    assert rows["decode, 1 x 32 (of copy rate)"].value == pytest.approx(2048 / 1e-6 / 4.3e12)
    assert rows["decode, 1 x 32, over fixed segments (ratio)"].value == pytest.approx(2)
    assert rows["decode, 1 x 32, over torch SDPA, contiguous (ratio)"].value == pytest.approx(3)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_torch_attends_to_the_same_in_pages_of_its_own(bench: Bench) -> None:
    made = contexts(bench, Batch("two", (128, 128)))
    decode.agree(made.out, {"contiguous": sdpa(made), "paged": flex(made)})


def test_contestants_that_disagree_are_not_timed(bench: Bench) -> None:
    made = contexts(bench, Batch("one", (16,)))
    right = Contestant([lambda: made.out.fill_(1.0)])
    wrong = Contestant([lambda: made.out.fill_(2.0)])
    with pytest.raises(RuntimeError, match="ours and other differ by 1 "):
        decode.agree(made.out, {"ours": right, "other": wrong})


def test_prefill_gives_rows_beside_torch(bench: Bench) -> None:
    chunks = (prefill.Chunks("causal 32", (32,), (32,), tflops=450), prefill.Chunks("behind 16", (16,), (32,)))
    rows = named(prefill.measure(bench, chunks))
    # 32 * 33 / 2 pairs of 2 heads with two products of 16 numbers, two operations each
    assert rows["prefill, causal 32 (TFLOP/s)"].value == pytest.approx(528 * 2 * 64 / 1e-6 / 1e12)
    assert rows["prefill, causal 32, over torch SDPA, contiguous (ratio)"].value == pytest.approx(2)


def test_chunks_of_prefill_that_fail_leave_the_others_their_rows(bench: Bench) -> None:
    rows = named(prefill.measure(bench, (prefill.Chunks("nothing", (), ()), prefill.Chunks("16", (16,), (16,)))))
    assert set(rows) == {"prefill, nothing: did not finish (failures)", "prefill, 16 (of matmul rate)"}


def test_the_small_kernels_give_rows(bench: Bench) -> None:
    rows = named(small.measure(bench, many=16, few=2))
    assert {name.partition(",")[0] for name in rows} >= {"rope_append", "add_rmsnorm", "silu_mul", "copy_blocks"}


def test_drawing_gives_a_row_for_each_way_to_ask(bench: Bench) -> None:
    rows = named(drawing.measure(bench, (2,)))
    assert set(rows) == {
        f"sample, 2 rows, {name} ({unit})" for name in drawing.ASKED for unit in ("us", "of copy rate")
    }


def test_a_batch_of_decode_that_fails_leaves_the_others_their_rows(bench: Bench) -> None:
    even = Batch("1 x 16", (16,), share=0.9)
    broken = Batch("nothing", ())
    rows = named(decode.measure(bench, [broken, even], (broken, even)))
    assert [name for name in rows if "did not finish" in name] == [
        "decode, nothing: did not finish (failures)",
        "decode, over fixed segments, geometric mean: did not finish (failures)",
        "work list: did not finish (failures)",
    ]
    assert "decode, 1 x 16 (of copy rate)" in rows


def test_a_rival_that_cannot_run_misses_its_bar(bench: Bench) -> None:
    half_a_page = Batch("1 x 64", (64,), flex=True)
    rows = decode.measure(bench, [half_a_page], (half_a_page, half_a_page))
    assert [row.name for row in rows if row.unit == "failures"] == [
        "decode, 1 x 64, over torch flex_attention, paged: did not run"
    ]


def test_a_rival_that_fails_is_left_out_and_ours_may_not_fail() -> None:
    def broken() -> Contestant:
        raise RuntimeError("out of memory")

    def sound() -> Contestant:
        return Contestant([lambda: None])

    assert list(ready({"ours": sound, "a": broken, "b": sound}, MadeUp())) == ["ours", "b"]
    with pytest.raises(RuntimeError, match="out of memory"):
        ready({"ours": broken, "a": sound}, MadeUp())


def sound(bench: Bench) -> list[Row]:
    return [Row("sound", 2, "us")]


def test_a_part_that_fails_misses_its_bar_and_leaves_the_others_and_itself_the_rows_it_had(bench: Bench) -> None:
    def broken(bench: Bench) -> Iterator[Row]:
        yield Row("begun", 1, "us")
        raise RuntimeError("out of order")

    parts = measure(["broken", "sound"], bench, {"broken": broken, "sound": sound})
    assert [[(row.name, row.passed) for row in rows] for rows in parts] == [
        [("begun", None), ("broken: did not finish", False)],
        [("sound", None)],
    ]


def test_an_interrupt_keeps_the_rows_so_far_and_tells_what_was_not_run(bench: Bench) -> None:
    def interrupted(bench: Bench) -> Iterator[Row]:
        yield Row("begun", 1, "us")
        raise KeyboardInterrupt

    parts = {"first": sound, "second": interrupted, "third": sound, "fourth": sound}
    assert [[(row.name, row.passed) for row in rows] for rows in measure(list(parts), bench, parts)] == [
        [("sound", None)],
        [("begun", None), ("second: interrupted", False), ("third: not run", False), ("fourth: not run", False)],
    ]


@pytest.mark.parametrize(("seconds", "passes"), [(0.004, 1), (0.0005, 8), (0.0015, 3), (7.0, 1)])
def test_a_graph_holds_so_many_passes_that_it_takes_four_milliseconds(seconds: float, passes: int) -> None:
    assert repeats(seconds) == passes


if not CUDA:

    def test_without_a_gpu_it_says_what_is_missing_and_ends_with_2(capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as ended:
            require_gpu("`python -m benchmarks.kernels.sweep`")
        assert ended.value.code == 2
        said = capsys.readouterr().err
        assert "finds no CUDA device" in said
        assert "Run `python -m benchmarks.kernels.sweep` on a machine with one" in said


@pytest.mark.real
def test_make_gpu_names_the_parts_that_there_are() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "gpu.sh", "decode"], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr == "error: gpu: decode: known are --quick, kernels, engine, benchmarks\n"


@pytest.mark.real
def test_make_gpu_says_how_it_is_called() -> None:
    done = subprocess.run(
        [ROOT / "scripts" / "gpu.sh", "--help"], check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: make gpu")


@pytest.mark.real
def test_make_gpu_lets_one_process_load_whole_models_and_many_test_what_comes_behind(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text('#!/bin/sh\nshift\n[ "$1" != pytest ] || echo "$@"\n')
    python.chmod(0o755)
    done = subprocess.run(
        [ROOT / "scripts" / "gpu.sh", "engine", "kernels"],
        env=os.environ | {"PYTHON": str(python)},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    many, one, behind = re.findall(r"-n (\d+)", done.stdout)
    assert (one, behind) == ("1", many)


def test_each_round_begins_with_another_contestant() -> None:
    turns: list[str] = []

    def noted(name: str) -> Callable[[], float]:
        return lambda: turns.append(name) or 1.0  # type: ignore[func-returns-value]

    assert rounds({"a": noted("a"), "b": noted("b")}, 2) == {"a": [1.0, 1.0], "b": [1.0, 1.0]}
    assert turns == ["a", "b", "b", "a"]
