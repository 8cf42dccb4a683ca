"""What a worker counts of its requests, from the outside: requests in, a scrape out."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import Rig, eventually, resuming, running
from tests.worker.scraped import samples
from tests.worker.scripted_engine import Script

from paceline_core.telemetry import Histogram
from paceline_workers.messages import Timing, Tokens
from paceline_workers.server.handlers.active_generation import Stopwatch, TokenMeter

CHAT = "/v1/chat/completions"
HELLO: dict[str, Any] = {"model": "chat", "messages": [{"role": "user", "content": "hello"}]}
STREAM = HELLO | {"stream": True}


def value(rig: Rig, name: str, **labels: str) -> float:
    body, _ = rig.worker.parts.measures.exposition(rig.worker.parts.engine)
    return sum(sample.value for sample in samples(body, name) if labels.items() <= sample.labels.items())


@pytest.fixture
async def rig(folder: Path, reply: list[int]) -> AsyncIterator[Rig]:
    async with running(Script(reply=reply, cached=4, pause_s=0.001), folder=folder) as rig:
        yield rig


@pytest.mark.parametrize("body", [HELLO, STREAM], ids=["whole", "stream"])
async def test_a_request_is_counted_once_with_its_tokens(rig: Rig, reply: list[int], body: dict[str, Any]) -> None:
    usage = (await rig.http.post(CHAT, json=HELLO)).json()["usage"]
    before = value(rig, "paceline_worker_tokens_total", kind="output")
    await rig.http.post(CHAT, json=body | {"max_tokens": 77})
    assert value(rig, "paceline_worker_tokens_total", kind="output") - before == len(reply) + 1
    assert value(rig, "paceline_worker_tokens_total", kind="input") == 2 * usage["prompt_tokens"]
    assert value(rig, "paceline_worker_tokens_total", kind="cached") == 8
    assert value(rig, "paceline_worker_sequences_total", finish="stop") == 2
    assert value(rig, "paceline_worker_request_tokens_sum", kind="longest") == 2 * (len(reply) + 1)
    assert value(rig, "paceline_worker_request_tokens_count", kind="limit") == 2
    for name in ("ttft", "tpot", "duration"):
        assert value(rig, f"paceline_worker_{name}_seconds_count") == 2


async def test_phases_add_up_to_the_duration(rig: Rig) -> None:
    await rig.http.post(CHAT, json=STREAM)
    duration = value(rig, "paceline_worker_duration_seconds_sum")
    assert value(rig, "paceline_worker_phase_seconds_sum") == pytest.approx(duration, rel=0.05)
    assert value(rig, "paceline_worker_phase_seconds_sum", phase="queue") == pytest.approx(0.001)


async def test_choices_are_sequences_of_one_request(rig: Rig, reply: list[int]) -> None:
    await rig.http.post(CHAT, json=HELLO | {"n": 3, "max_tokens": 5})
    assert value(rig, "paceline_worker_sequences_total", finish="length") == 3
    assert value(rig, "paceline_worker_duration_seconds_count") == 1
    assert value(rig, "paceline_worker_request_choices_sum") == 3
    assert value(rig, "paceline_worker_request_tokens_sum", kind="output") == 15
    assert value(rig, "paceline_worker_request_tokens_sum", kind="longest") == 5
    assert value(rig, "paceline_worker_tokens_total", kind="output") == 15


async def test_only_the_tokens_of_this_life_of_a_stream_are_counted(rig: Rig, reply: list[int]) -> None:
    body, headers = resuming(STREAM, {"index": 0, "ids": reply[:3]})
    await rig.http.post(CHAT, content=body, headers={**rig.gateway_headers, **headers})
    assert value(rig, "paceline_worker_tokens_total", kind="output") == len(reply) + 1 - 3
    assert value(rig, "paceline_worker_request_tokens_sum", kind="output") == len(reply) + 1 - 3


async def test_a_client_that_leaves_ends_its_sequence_as_aborted(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, fault="hold", phase="decode"), folder=folder) as rig:
        call = rig.call(CHAT, STREAM)
        await call.status()
        call.leave()
        await call.done()
        await eventually(lambda: value(rig, "paceline_worker_sequences_total", finish="abort") == 1)
        assert value(rig, "paceline_worker_ttft_seconds_count") == 1
        assert value(rig, "paceline_worker_tokens_total", kind="output") > 0
        assert value(rig, "paceline_worker_duration_seconds_count") == 0


async def test_a_fault_of_the_engine_ends_its_sequence_as_an_error(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply, fault="error", phase="decode"), folder=folder) as rig:
        await rig.http.post(CHAT, json=STREAM)
        assert value(rig, "paceline_worker_sequences_total", finish="error") == 1
        assert value(rig, "paceline_worker_sequences_total") == 1


async def test_a_request_that_is_refused_before_the_engine_has_it_has_no_sequence(rig: Rig) -> None:
    await rig.http.post(CHAT, json=HELLO | {"max_tokens": -1})
    assert value(rig, "paceline_worker_sequences_total") == 0
    assert value(rig, "paceline_worker_ttft_seconds_count") == 0


async def test_every_finish_reason_is_there_from_the_start(rig: Rig) -> None:
    body, _ = rig.worker.parts.measures.exposition(rig.worker.parts.engine)
    reasons = [line for line in body.decode().splitlines() if line.startswith("vllm:request_success_total{")]
    assert len(reasons) == 5


async def test_a_scrape_is_plain_text_whatever_form_is_liked_best(rig: Rig) -> None:
    """prometheus-client's OpenMetrics form writes the colon of vLLM's names as an underscore."""
    accept = "application/openmetrics-text;version=1.0.0;q=0.75,text/plain;version=0.0.4;q=0.5"
    scrape = await rig.http.get("/metrics", headers={"accept": accept})
    assert scrape.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nvllm:request_success_total{" in scrape.text


async def test_vllms_names_can_be_left_out(folder: Path, reply: list[int]) -> None:
    async with running(Script(reply=reply), folder=folder, vllm_names=False) as rig:
        body, _ = rig.worker.parts.measures.exposition(rig.worker.parts.engine)
        assert b"vllm:" not in body
        assert b"paceline_worker_ttft_seconds" in body


def frame(name: str, *ids: int) -> Tokens:
    return Tokens(name, 0, list(ids))


def meter() -> TokenMeter:
    return TokenMeter(Histogram((1.0,)), Histogram((1.0,)))


def test_a_gap_is_shared_by_the_steps_of_a_read() -> None:
    meters = meter()
    watch = Stopwatch(0.0, meters)
    watch.read(1.0, [frame("a", 1)])
    watch.read(1.6, [frame("a", 2, 3), frame("a", 4)])
    watch.read(1.8, [frame("a", 5), frame("b", 6)])
    assert (meters.ttft.total, sum(meters.ttft.counts)) == (1.0, 1)
    assert meters.itl.total == pytest.approx(0.2 + 0.2)
    assert sum(meters.itl.counts) == 2
    assert meters.output == 6
    assert (watch.first, watch.last) == (1.0, 1.8)


def test_a_frame_without_tokens_is_no_gap() -> None:
    meters = meter()
    watch = Stopwatch(0.0, meters)
    watch.read(1.0, [frame("a")])
    assert (watch.first, meters.output, sum(meters.ttft.counts)) == (None, 0, 0)


def test_phases_of_the_engine_are_its_own_and_post_is_the_rest() -> None:
    watch = Stopwatch(0.0)
    watch.submitted = 0.5
    spent = watch.phases(10.0, Timing(queue=1.0, batch_wait=2.0, prefill=1.5, decode=4.0))
    assert [round(seconds, 6) for seconds in spent.values()] == [0.5, 1.0, 2.0, 1.5, 4.0, 1.0]
