"""Streams over real workers that die or give them up: the text is that of the undisturbed run, token by token."""

import asyncio
import json
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.gateway.replicas import EMULATED, Replica, replicas
from tests.gateway.stand import Stand, gateway, until
from tests.worker.processes import LIMIT_S
from tests.worker.test_structured_real import SCHEMA, TOOL
from tests.worker.test_tool_routes import TEMPLATE

from paceline_core.auth import new_signing_key
from paceline_workers import demo

pytestmark = pytest.mark.real
STREAMS, TOKENS = 12, 30
LONG: dict[str, Any] = {"max_tokens": TOKENS, "ignore_eos": True}
KEY = new_signing_key()


def ask(number: int, **how: Any) -> dict[str, Any]:
    question = [{"role": "user", "content": f"What is TTFT, {number}?"}]
    return {"model": "chat", "messages": question, "stream": True, "stream_options": {"include_usage": True}} | how


async def answer(stand: Stand, body: dict[str, Any]) -> list[Any]:
    """The choices of a stream that ended well, each as what its events say together; usage last."""
    response = await stand.client.post("/v1/chat/completions", json=body)
    blocks = response.text.split("\n\n")
    assert blocks[-2:] == ["data: [DONE]", ""], response.text[-400:]
    events = [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]
    assert len({(event["id"], event["created"]) for event in events}) == 1
    choices: dict[int, dict[str, Any]] = {}
    for event in events:
        for choice in event["choices"]:
            _add(choices.setdefault(choice["index"], {"roles": 0, "text": "", "calls": [], "ends": []}), choice)
    (usage,) = [event["usage"] for event in events if event.get("usage")]
    return [*(choices[index] for index in sorted(choices)), (usage["prompt_tokens"], usage["completion_tokens"])]


def _add(so_far: dict[str, Any], choice: dict[str, Any]) -> None:
    delta = choice["delta"]
    so_far["roles"] += "role" in delta
    so_far["text"] += delta.get("content") or ""
    so_far["calls"] += [call["function"] for call in delta.get("tool_calls", [])]
    so_far["ends"] += [choice["finish_reason"]] if choice["finish_reason"] else []
    for entry in (choice.get("logprobs") or {}).get("content") or []:
        so_far.setdefault("tokens", []).append(entry["token"])


async def test_workers_killed_at_any_phase_break_no_stream(tmp_path: Path) -> None:
    bodies = [ask(number, seed=number, **LONG) for number in range(STREAMS)]
    with replicas(tmp_path, 3, KEY, engine=EMULATED) as workers:
        async with gateway(tmp_path, signing_key=KEY) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            undisturbed = await asyncio.gather(*(answer(stand, body) for body in bodies))
            for told in (1, TOKENS // 2):
                asked = [asyncio.create_task(answer(stand, body)) for body in bodies]
                await until(partial(_far, stand, workers, told))
                workers.pop().kill()
                assert await asyncio.gather(*asked) == undisturbed
            assert await stand.metric("paceline_requests_total", outcome="ok") == 3 * STREAMS
            assert await stand.metric("paceline_stream_resumed_total", reason="connection") > 0


def _far(stand: Stand, workers: list[Replica], told: int) -> bool:
    """Whether a stream of the worker that dies next has this many tokens."""
    own = [call for call in stand.calls if call.machine.worker == workers[-1].name]
    return any(call.machine.meter.output >= told for call in own)


async def test_streams_outlive_evacuation_drain_and_engine(tmp_path: Path) -> None:
    bodies = [ask(number, seed=number, **LONG) for number in range(STREAMS)]
    ends: dict[str, Callable[[Replica], Any]] = {
        "evacuate": Replica.evacuate,
        "drain": lambda worker: worker.process.signal(signal.SIGTERM),  # which may take shorter than the streams
        "engine": lambda worker: worker.process.engine.kill(),
    }
    with replicas(tmp_path, 3, KEY, engine=EMULATED, drain_timeout_s=0.02) as workers:
        async with gateway(tmp_path, signing_key=KEY) as stand:
            await stand.serve([worker.endpoint for worker in workers])
            undisturbed = await asyncio.gather(*(answer(stand, body) for body in bodies))
            for reason, end in ends.items():
                asked = [asyncio.create_task(answer(stand, body)) for body in bodies]
                await until(lambda: _far(stand, workers, 3))
                await asyncio.to_thread(end, workers[-1])
                assert await asyncio.gather(*asked) == undisturbed
                assert await stand.metric("paceline_stream_resumed_total", reason=reason) > 0
                workers.insert(0, workers.pop())
            assert await stand.metric("paceline_stream_aborted_total") == 0


@pytest.fixture(scope="module")
def demo_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Replica]]:
    """The demo model on two workers, with a template that takes tools."""
    folder = tmp_path_factory.mktemp("demo")
    shutil.copytree(demo.FOLDER, folder / "model")
    settings = json.loads((folder / "model" / "tokenizer_config.json").read_text())
    (folder / "model" / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": TEMPLATE}))
    model = f"file://{folder / 'model'}"
    with replicas(folder, 2, KEY, model=model, watchdog_s=LIMIT_S, engine={"threads": 1}) as made:
        yield made


HOW: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0, **LONG},
    "seeded": {"temperature": 1.3, "seed": 11, **LONG},
    "stop strings": {"temperature": 1.3, "seed": 3, "stop": ["e ", "qq"], "min_tokens": 20, **LONG},
    "three choices": {"temperature": 1.3, "seed": 5, "n": 3, **LONG},
    "logprobs": {"temperature": 0, "logprobs": True, "top_logprobs": 2, **LONG},
    "structured": {
        "temperature": 1,
        "seed": 3,
        "max_tokens": 200,
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": SCHEMA}},
    },
    "a tool call": {"seed": 3, "max_tokens": 200, "tools": [TOOL], "tool_choice": "required"},
}


@pytest.mark.parametrize("name", HOW)
async def test_a_real_models_stream_moves_back_and_forth_unchanged(
    demo_workers: list[Replica], tmp_path: Path, name: str
) -> None:
    body = ask(0, **HOW[name])
    async with gateway(tmp_path, signing_key=KEY) as stand:
        await stand.serve([worker.endpoint for worker in demo_workers])
        undisturbed = await answer(stand, body)
        asked = asyncio.create_task(answer(stand, body))
        moved, told = 0, 5
        while not asked.done():
            await until(partial(_over_or_at, asked, stand, told))
            moved += sum([await asyncio.to_thread(worker.evacuate) for worker in demo_workers])
            told *= 2  # ever farther: what is moved before it has begun starts again
        assert await asked == undisturbed
        assert all(choice["roles"] == len(choice["ends"]) == 1 for choice in undisturbed[:-1])
        assert moved


def _over_or_at(asked: asyncio.Task[Any], stand: Stand, told: int) -> bool:
    return asked.done() or any(call.machine.meter.output >= told for call in stand.calls)
