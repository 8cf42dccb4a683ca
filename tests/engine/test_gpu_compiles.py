"""Nobody waits for a compiler once a worker is ready: told by the compiler itself, without a GPU."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.kernels, pytest.mark.real]
LIMIT_S = 110


def test_no_step_compiles_a_kernel_that_the_warm_up_has_not() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.gpu_compiles"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        command, check=False, cwd=root, env=environment, capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout)
    assert {"plan_kernel", "decode_kernel", "merge_splits_kernel", "prefill_kernel", "draw_kernel"} <= {
        *compiled["warm"]
    }
    assert compiled["later"] == []
