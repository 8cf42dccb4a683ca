"""What a real engine will not queue: a client is told what to do, and no gateway takes it for an engine that fails."""

from pathlib import Path
from typing import Any

import pytest
from tests.worker.processes import HTTP, worker_process

pytestmark = pytest.mark.real
BODY: dict[str, Any] = {"model": "chat", "prompt": [7] * 100, "max_tokens": 100, "ignore_eos": True}


def test_a_search_that_memory_does_not_hold_is_the_clients_error(tmp_path: Path) -> None:
    engine = {"threads": 1, "kv_pages": 24, "page_tokens": 16, "max_seqs": 8}
    with worker_process(tmp_path, engine=engine) as worker:
        worker.ready()
        answer = HTTP.post(f"{worker.url}/v1/completions", json=BODY | {"use_beam_search": True, "n": 8})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
        assert answer.json()["error"]["message"] == "8 beams need more KV memory than there is (384 tokens)"
        assert answer.headers["x-should-retry"] == "false"


def test_a_full_queue_is_no_failure(tmp_path: Path) -> None:
    engine = {"threads": 1, "max_seqs": 1, "class_waiting": {"interactive": 1}}
    with worker_process(tmp_path, engine=engine) as worker:
        worker.ready()
        answer = HTTP.post(f"{worker.url}/v1/completions", json=BODY | {"prompt": ["a", "b", "c", "d"]})
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "queue_full")
        assert answer.headers["retry-after"] == "1"
