"""Requests that go to another service of their route, through real ports."""

import pytest
from tests.gateway import manifests
from tests.gateway.conftest import MakeWorker
from tests.gateway.stand import CHAT, Stand

pytestmark = pytest.mark.real


async def test_a_service_that_is_down_is_stood_in_for_and_asked_again_when_it_is_back(
    stand: Stand, make_worker: MakeWorker
) -> None:
    stand.cluster.put(manifests.service("spare"))
    stand.cluster.put(manifests.route("public", {"service": "chat"}, {"service": "spare", "when": "failure"}))
    first, spare = await make_worker(), await make_worker("w1", service="default/spare")
    stand.work(spare, service="default/spare")
    await stand.ready(service="default/spare")
    asked = CHAT | {"model": "public"}
    assert (await stand.client.post("/v1/chat/completions", json=asked)).status_code == 200
    assert (len(first.seen), len(spare.seen)) == (0, 1)
    assert await stand.metric("paceline_diverted_requests_total", pisvc="chat") == 1
    stand.work(first)
    await stand.ready()
    assert (await stand.client.post("/v1/chat/completions", json=asked)).status_code == 200
    assert (len(first.seen), len(spare.seen)) == (1, 1)
