"""An engine whose GPU hangs is ended like any other one that hangs: a step that gets nowhere sends no sign of life."""

from pathlib import Path

import pytest
from tests.worker.processes import HTTP, until, worker_process

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

ENGINE = {"dtype": "fp32", "page_tokens": 16, "kv_pages": 4, "max_seqs": 1, "step_tokens": 16, "max_model_len": 32}


def test_a_step_that_its_device_never_ends_sends_no_sign_and_its_engine_is_killed(tmp_path: Path) -> None:
    with worker_process(tmp_path, ("tests.engine.stuck",), watchdog_s=3.0, engine=ENGINE) as worker:
        worker.ready()
        body = {"model": "chat", "prompt": "What is TTFT?", "max_tokens": 5}
        answer = HTTP.post(f"{worker.url}/v1/completions", json=body)
        assert answer.json()["error"]["code"] == "engine_failed"
        until(lambda: "the engine hangs and is killed" in worker.said())
