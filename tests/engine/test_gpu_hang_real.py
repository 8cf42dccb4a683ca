"""A kernel that hangs is noticed like anything else that does: after the watchdog's time, not ten times that."""

import json
from pathlib import Path

import pytest
from tests.worker.processes import HTTP, until, worker_process

from paceline_workers.server.pulse import PATIENCE

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

WATCHDOG_S = 3.0
ENGINE = {"dtype": "fp32", "page_tokens": 16, "kv_pages": 4, "max_seqs": 1, "step_tokens": 16, "max_model_len": 32}


def test_an_engine_whose_device_never_ends_a_step_is_killed_as_one_that_does_nothing(tmp_path: Path) -> None:
    with worker_process(tmp_path, ("tests.engine.stuck",), watchdog_s=WATCHDOG_S, engine=ENGINE) as worker:
        worker.ready()
        body = {"model": "chat", "prompt": "What is TTFT?", "max_tokens": 5}
        answer = HTTP.post(f"{worker.url}/v1/completions", json=body)
        assert answer.json()["error"]["code"] == "engine_failed"
        until(lambda: "the engine hangs and is killed" in worker.said())
        killed = next(line for line in worker.said().splitlines() if "the engine hangs and is killed" in line)
        assert WATCHDOG_S < json.loads(killed)["silence_s"] < PATIENCE * WATCHDOG_S
