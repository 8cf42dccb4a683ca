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


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each engine asks for, in a process that does not interpret."""
    folder = tmp_path_factory.mktemp("model")
    reference.write(folder, "llama")
    command = [sys.executable, "-W", "ignore", "-m", "tests.engine.gpu_variants", str(folder), json.dumps(ENGINES)]
    environ = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    said = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert said.returncode == 0, said.stderr
    return dict(json.loads(said.stdout))


@pytest.mark.parametrize("name", ENGINES)
def test_after_the_warm_up_nothing_is_compiled(found: dict[str, dict[str, Any]], name: str) -> None:
    assert found[name]["late"] == []
    assert found[name]["warm"] >= 10
