"""Requests that go well, through real ports."""

import pytest

from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, Stand

pytestmark = pytest.mark.real


async def test_a_whole_answer_passes_through(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=CHAT, headers={"x-request-id": "abc-1"})
    assert response.status_code == 200
    assert response.json()["choices"][0]["message"]["content"] == "Time to first token"
    assert response.headers["x-request-id"] == "abc-1"


async def test_a_stream_passes_through_without_the_workers_comments(stand: Stand, make_worker: MakeWorker) -> None:
    worker = await make_worker()
    stand.work(worker)
    response = await stand.client.post("/v1/chat/completions", json=CHAT | {"stream": True})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [block for block in response.text.split("\n\n") if block]
    assert all(event.startswith("data: ") for event in events)
    assert events[-1] == "data: [DONE]"
    assert len(events) == 6
