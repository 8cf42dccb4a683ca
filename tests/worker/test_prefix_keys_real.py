"""A gateway's prefix keys through a whole worker: sent with a request, told on the load stream, and told as gone."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.processes import HTTP, LIMIT_S, WorkerProcess, worker_process

from paceline_core.wire import PREFIX, PrefixKeys

pytestmark = pytest.mark.real


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[WorkerProcess]:
    engine = {"threads": 1, "page_tokens": 16, "kv_pages": 56}
    with worker_process(tmp_path, watchdog_s=LIMIT_S, engine=engine) as worker:
        worker.ready()
        yield worker


def ask(worker: WorkerProcess, text: str, keys: tuple[str, ...] = ()) -> None:
    body = {"model": "chat", "messages": [{"role": "user", "content": text}], "max_completion_tokens": 2}
    prefix = {PREFIX: PrefixKeys(len(text), keys).header()} if keys else {}
    assert (
        HTTP.post(f"{worker.url}/v1/chat/completions", json=body, headers=worker.gateway_headers | prefix).status_code
        == 200
    )


def told(lines: Iterator[str], field: str, count: int = 1) -> list[str]:
    """The keys of that kind, in however many reports they come, until there are so many."""
    found: list[str] = []
    while len(found) < count:
        report: dict[str, Any] = json.loads(next(lines))
        found += report["prefix"][field]
    return found


def test_keys_are_told_when_they_are_cached_and_when_they_are_evicted(worker: WorkerProcess) -> None:
    keys = ("0" * 15 + "1", "f" * 16)
    with HTTP.stream("GET", f"{worker.url}/internal/load", headers=worker.gateway_headers) as response:
        lines = response.iter_lines()
        ask(worker, "the worker is a pair of processes. " * 60, keys)
        assert sorted(told(lines, "added", len(keys))) == sorted(keys)
        for number in range(4):
            ask(worker, f"{number} is a number. " * 40)
        assert set(told(lines, "evicted")) <= set(keys)
