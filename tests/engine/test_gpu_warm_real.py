"""No client waits for a compiler: after the warm-up Triton would compile nothing more, whatever is served."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.engine import reference

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ROOT = Path(__file__).parents[2]
LIMIT_S = 240.0
ENGINES: dict[str, dict[str, Any]] = {
    "bf16": {"kv_pages": 12, "host_bytes": 1 << 20},
    "fp8": {"kv_pages": 12, "kv_dtype": "fp8", "attention_window": 64, "sink_tokens": 4},
    "fp32": {"kv_pages": 40, "dtype": "fp32", "kv_dtype": "int8", "page_tokens": 16},
}


@pytest.mark.parametrize("name", ENGINES)
def test_after_the_warm_up_nothing_is_compiled(tmp_path: Path, name: str) -> None:
    """In a process of its own, which must not interpret."""
    reference.write(tmp_path, "llama")
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.gpu_variants", str(tmp_path)]
    environ = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    asked = [*command, json.dumps(ENGINES[name])]
    said = subprocess.run(asked, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert said.returncode == 0, said.stderr
    found = json.loads(said.stdout)
    assert found["late"] == []
    assert found["warm"] >= 10
