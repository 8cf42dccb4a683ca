"""What the kernels become on a GPU, judged without one: Triton compiles in a process that does not interpret."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.kernels.machine_code import Taken, taken
from benchmarks.kernels.standin import Loaded

ROOT = Path(__file__).parents[2]
LIMIT_S = 290


def compiled() -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks.kernels.compiled", "--json"]
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.stdout, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.real
@pytest.mark.timeout(300)
def test_every_kernel_compiles_for_sm_90_fits_and_spills_what_its_case_admits() -> None:
    rows = compiled()
    assert {row["case"]: row["fault"] for row in rows if row["fault"]} == {}
    launched = {row["kernel"] for row in rows}
    sources = ROOT.glob("kernels/paceline_kernels/*/*kernel.py")
    written = {name for path in sources for name in re.findall(r"^def (\w+_kernel)\(", path.read_text(), re.MULTILINE)}
    assert written <= launched, "benchmarks/kernels/cases.py launches none of these"
    watched = {row["kernel"]: row["instructions"] for row in rows if row["instructions"]}
    decode, prefill = watched["decode_kernel"], watched["prefill_kernel"]
    assert decode["mma"], "a decode step's products are left to scalar units"
    assert decode["cp.async"], "a decode step's pages are not read ahead"
    assert prefill["wgmma"], "a prefill's products are not those of warp groups"
    assert 2 * prefill["waits"] <= prefill["wgmma"], "a prefill's products wait for each other"
    assert prefill["TMA"], "a prefill's pages are not brought by the copy engine"


@pytest.mark.real
def test_a_case_that_there_is_not_is_refused_with_those_that_there_are() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "benchmarks.kernels.compiled", "--only", "silu", "nosuch"]
    done = subprocess.run(
        command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 2
    assert "--only nosuch: no case has it in its name: paged_decode bf16, 1 queries; " in done.stderr


def loaded(warps: int, shared: int) -> Loaded:
    return Loaded("some_kernel", b"", shared, warps, 3)


def test_what_a_kernel_takes_is_read_from_the_line_below_its_name() -> None:
    said = (
        " Function other_kernel:\n  REG:9 STACK:0 LOCAL:0\n Function some_kernel:\n  REG:40 STACK:24 SHARED:0 LOCAL:8\n"
    )
    assert taken(said, loaded(4, 1000)) == Taken(registers=40, spilled=32, shared=1000, warps=4)


def test_a_kernel_that_is_not_in_the_machine_code_is_an_error() -> None:
    with pytest.raises(ValueError, match="no function some_kernel"):
        taken(" Function other_kernel:\n  REG:9 STACK:0 LOCAL:0\n", loaded(4, 1000))


@pytest.mark.parametrize(
    ("what", "programs"),
    [
        (Taken(registers=128, spilled=0, shared=0, warps=4), 4),  # 65,536 registers / (128 * 32 * 4)
        (Taken(registers=129, spilled=0, shared=0, warps=4), 3),  # a warp is given 4,352
        (Taken(registers=32, spilled=0, shared=75 << 10, warps=4), 3),  # 228 KB / 76 KB
        (Taken(registers=16, spilled=0, shared=0, warps=1), 32),
        (Taken(registers=16, spilled=0, shared=0, warps=8), 8),  # 64 warps
    ],
)
def test_programs_on_a_multiprocessor_are_bounded_by_registers_shared_memory_and_warps(
    what: Taken, programs: int
) -> None:
    assert what.programs == programs


@pytest.mark.real
def test_a_cache_that_cannot_be_written_is_named_without_a_trace(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = tmp_path / "file" / "cache"
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kernels.compiled", "--only", "silu_mul"],
        check=False, cwd=ROOT, env={**environment, "TRITON_CACHE_DIR": str(cache)},
        capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    assert done.returncode == 2
    assert f"{cache} cannot be used: Not a directory; let TRITON_CACHE_DIR name a folder" in done.stderr
    assert "Traceback" not in done.stderr
