"""Resuming on a real engine: the demo model's streams, greedy and seeded, continued at every event."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from tests.worker.harness import events, resuming, text_of
from tests.worker.processes import HTTP, LIMIT_S, WorkerProcess, worker_process

pytestmark = pytest.mark.real

QUESTION: dict[str, Any] = {
    "model": "chat",
    "messages": [{"role": "user", "content": "What is TTFT?"}],
    "stream": True,
    "max_completion_tokens": 24,
    "ignore_eos": True,
}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkerProcess]:
    with worker_process(tmp_path_factory.mktemp("demo"), watchdog_s=LIMIT_S, engine={"threads": 1}) as worker:
        worker.ready()
        yield worker


def posted(worker: WorkerProcess, content: bytes, headers: dict[str, str]) -> bytes:
    return HTTP.post(
        f"{worker.url}/v1/chat/completions", content=content, headers=worker.gateway_headers | headers
    ).content


def parts(body: bytes) -> list[tuple[list[int], str]]:
    """Ids and text of the events behind each comment that tells ids."""
    told = body.split(b": p ")[1:]
    ids = [part.split(b"\n", 1)[0].split(b" ")[1] for part in told]
    return [
        ([] if own == b"-" else [int(token) for token in own.split(b",")], text_of(part))
        for own, part in zip(ids, told, strict=True)
    ]


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 0},
        {"temperature": 1.3, "seed": 11},
        {"temperature": 1.3, "top_p": 0.9, "stop": ["e ", "qq"], "seed": 3},
        {"temperature": 1.3},  # the seed is the gateway's
    ],
)
def test_a_stream_resumed_at_any_event_has_the_same_rest(worker: WorkerProcess, how: dict[str, Any]) -> None:
    seed = {"x-paceline-seed": "1234"}
    body = QUESTION | how
    first = posted(worker, json.dumps(body).encode(), seed)
    pieces = parts(first)
    assert len(pieces) > 1

    def rest(count: int) -> str:
        content, headers = resuming(body, {"ids": [token for ids, _ in pieces[:count] for token in ids]})
        return text_of(posted(worker, content, headers | seed))

    with ThreadPoolExecutor(8) as pool:
        rests = list(pool.map(rest, range(1, len(pieces))))
    texts = ["".join(text for _, text in pieces[:count]) for count in range(1, len(pieces))]
    assert [before + after for before, after in zip(texts, rests, strict=True)] == [text_of(first)] * len(rests)
    assert events(first)[-1] == "[DONE]"
