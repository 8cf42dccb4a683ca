"""Prefixes that are warm before the worker is ready: which tokens, whose pages, and what a failure costs."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import LIMIT_S, Launcher, eventually, running
from tests.worker.processes import HTTP, worker_process
from tests.worker.scripted_engine import Script

from paceline_core.clock import SystemClock
from paceline_core.errors import InvalidInput
from paceline_workers import demo
from paceline_workers.server.engine.client import EngineClient, EngineState
from paceline_workers.server.prefix_warmup import WarmPrefixes
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer

SYSTEM = "You keep the promise of a service, and say in one sentence what it costs."
TEXTS = "/v1/completions"
PROMPT: dict[str, Any] = {"model": "chat", "prompt": "hello"}


@pytest.fixture(scope="module")
def template(tokenizer: Tokenizer) -> ChatTemplate:
    found = ChatTemplate.load(demo.FOLDER, tokenizer.special_tokens, SystemClock().utc)
    assert found is not None
    return found


def begins(ids: Sequence[int], prefix: Sequence[int]) -> bool:
    return list(ids[: len(prefix)]) == list(prefix)


def test_a_text_is_warmed_as_prompts_and_as_chats_begin_with_it(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    warm = WarmPrefixes.of([SYSTEM], tokenizer, template)
    plain, chat = warm.prefixes
    assert SYSTEM.startswith(tokenizer.decode(plain))
    for more in ("", " And then?", "\n\n2", "x"):
        assert begins(tokenizer.encode_now(SYSTEM + more, special=True), plain)
        turns = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": more}]
        assert begins(tokenizer.encode_now(template.render(turns), special=False), chat)


def test_only_what_begins_with_a_warm_prefix_is_nobodys_secret(tokenizer: Tokenizer, template: ChatTemplate) -> None:
    warm = WarmPrefixes.of([SYSTEM, "You keep"], tokenizer, template)
    ids = tokenizer.encode_now(f"{SYSTEM} What of me?", special=True)
    assert warm.unsalted(ids) == len(warm.prefixes[0]) < len(ids)
    assert warm.unsalted(ids[1:]) == 0
    assert WarmPrefixes().unsalted(ids) == 0


def test_a_template_without_system_messages_warms_plain_prompts(tokenizer: Tokenizer) -> None:
    refusing = ChatTemplate(
        "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}hi", {}, SystemClock().utc, "t"
    )
    assert len(WarmPrefixes.of([SYSTEM], tokenizer, refusing).prefixes) == 1


async def test_a_worker_is_ready_only_when_its_prefixes_are_warm(folder: Path, reply: list[int]) -> None:
    log = folder / "engine.log"
    warm = {"warm_prefixes": [SYSTEM]}
    async with running(Script(reply=reply, log=str(log)), folder=folder, engine=warm) as rig:
        assert log.read_text().split() == ["Submit", "Submit"]
        assert (await rig.http.post(TEXTS, json=PROMPT)).status_code == 200


async def test_a_worker_that_warms_up_is_not_ready(folder: Path) -> None:
    log = folder / "engine.log"
    script = Script(fault="hold", phase="prefill", log=str(log))
    async with running(script, folder=folder, ready=False, engine={"warm_prefixes": [SYSTEM]}) as rig:
        await eventually(lambda: log.exists() and log.read_text().split() == ["Submit", "Submit"])
        assert (await rig.http.get("/readyz")).status_code == 503
        assert (await rig.http.post(TEXTS, json=PROMPT)).json()["error"]["code"] == "no_capacity"
        assert (await rig.http.get("/healthz")).status_code == 200


async def test_a_prefix_that_fails_keeps_no_worker_from_its_clients(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    script = Script(fault="error", phase="prefill")
    async with running(script, folder=folder, engine={"warm_prefixes": [SYSTEM]}) as rig:
        assert (await rig.http.get("/readyz")).status_code == 200
    assert "a prefix is not warm" in caplog.text


async def test_an_engine_that_dies_while_it_warms_up_is_replaced_and_warmed(folder: Path) -> None:
    log = folder / "engine.log"
    script = Script(fault="crash", phase="prefill", once=str(folder / "struck"), log=str(log))
    async with running(script, folder=folder, engine={"warm_prefixes": [SYSTEM]}) as rig:
        assert rig.worker.parts.engine.restarts == 1
        assert log.read_text().count("Submit") in {3, 4}  # it died with the first one or with both


@contextlib.asynccontextmanager
async def client_of(script: Script, warm: WarmPrefixes) -> AsyncIterator[EngineClient]:
    client = EngineClient(Launcher(script), SystemClock(), watchdog_s=20.0, warm=warm.warm)
    running = asyncio.create_task(client.run())
    try:
        yield client
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_warming_ends_in_time_whatever_the_engine_does(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = folder / "engine.log"
    script = Script(fault="hold", phase="prefill", log=str(log))
    async with client_of(script, WarmPrefixes(((1, 2, 3),), limit_s=0.05)) as client:
        await eventually(lambda: client.state is EngineState.UP)
        await eventually(lambda: log.read_text().split() == ["Submit", "Abort"])
    assert "prefixes are not warm" in caplog.text


async def test_a_prefix_as_long_as_the_context_ends_the_worker_naming_the_field() -> None:
    async with client_of(Script(context=16), WarmPrefixes((tuple(range(15)),))) as client:
        await eventually(lambda: client.state is EngineState.UP)
    warm = WarmPrefixes((tuple(range(16)),)).warm
    client = EngineClient(Launcher(Script(context=16)), SystemClock(), watchdog_s=20.0, warm=warm)
    with pytest.raises(InvalidInput, match=r"^engine\.warm_prefixes: one has 16 tokens, and the context 16; shorten"):
        await asyncio.wait_for(client.run(), LIMIT_S)


async def test_prefixes_without_a_cache_are_refused(folder: Path) -> None:
    with pytest.raises(InvalidInput, match=r"engine\.warm_prefixes: are kept by the prefix cache"):
        async with running(Script(), folder=folder, engine={"warm_prefixes": ["a"], "prefix_cache": False}):
            pass


@pytest.mark.real
def test_the_first_request_of_any_tenant_finds_the_prefix_and_nothing_of_another_tenant(folder: Path) -> None:
    engine = {"threads": 1, "page_tokens": 16, "warm_prefixes": [SYSTEM * 3]}
    with worker_process(folder, watchdog_s=30.0, engine=engine) as worker:
        worker.ready()
        secret = "The secret of one tenant is kept from all others, whatever they ask. " * 3

        def cached(tenant: str) -> int:
            turns = [{"role": "system", "content": SYSTEM * 3}, {"role": "user", "content": secret}]
            body = {"model": "chat", "messages": turns, "max_tokens": 1}
            headers = {**worker.gateway_headers, "x-paceline-tenant": tenant}
            usage = HTTP.post(f"{worker.url}/v1/chat/completions", json=body, headers=headers).json()["usage"]
            return int(usage["prompt_tokens_details"]["cached_tokens"])

        first, other, again = cached("a"), cached("b"), cached("a")
        assert first == other > 16
        assert again > first
