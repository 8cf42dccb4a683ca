"""A session over a stack that is already judged: which service is asked, what a check tells, and when it ends."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from paceline_cli.ui.up_outputs import JsonUpOutput
from paceline_cli.up.check import ChatTarget
from paceline_cli.up.session import Session, UpOptions
from paceline_core.clock import SystemClock
from paceline_core.errors import Unreachable
from paceline_core.kube import ObjectKey
from paceline_local.stack import LocalStack

CHAT, CODE, DRAW = (ObjectKey("default", name) for name in ("chat", "code", "draw"))


class Judged:
    """A stack whose services are ready but for those in `broken`."""

    def __init__(self, broken: Mapping[ObjectKey, Unreachable]) -> None:
        self._broken = dict(broken)

    async def wait_ready(self) -> dict[ObjectKey, Unreachable]:
        return self._broken

    def snapshot(self) -> dict[str, Any]:
        return {"source": "embedded", "uptime_s": 0.0}

    def raise_if_broken(self) -> None:
        pass

    def log(self, name: str) -> Path:
        return Path("/no/log")


def broken(*keys: ObjectKey) -> dict[ObjectKey, Unreachable]:
    return {key: Unreachable(f"{key.name} keeps ending: {key.name} is wrong") for key in keys}


async def session(failed: Mapping[ObjectKey, Unreachable], port: int = 1, **options: Any) -> list[dict[str, Any]]:
    """What it said; port 1 never answers."""
    said: list[str] = []
    targets = {key: ChatTarget(f"http://127.0.0.1:{port}", "pl_key", key.name) for key in (CHAT, CODE, DRAW)}
    asked = UpOptions((), Path(), **options)
    stack, clock = cast("LocalStack", Judged(failed)), SystemClock()
    await Session(asked, stack, targets, JsonUpOutput(said.append), clock, asyncio.Event()).run(())
    return [json.loads(line) for line in said]


async def test_the_first_service_that_answers_is_the_one_to_try() -> None:
    said = await session(broken(CHAT), duration_s=0.0)
    assert [line["model"] for line in said if line["event"] == "ready"] == ["code"]


async def test_when_none_answers_all_reasons_are_told() -> None:
    with pytest.raises(Unreachable, match=r"^chat keeps .*\ncode keeps .*\ndraw keeps ending: draw is wrong$"):
        await session(broken(CHAT, CODE, DRAW))


async def test_a_check_fails_when_one_service_does_and_names_each() -> None:
    with pytest.raises(Unreachable, match=r"^chat keeps ending: chat is wrong\ndraw keeps ending: draw is wrong$"):
        await session(broken(CHAT, DRAW), check=True)


async def test_a_check_without_an_answer_ends_with_its_duration() -> None:
    async with await asyncio.start_server(lambda *_: None, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        with pytest.raises(Unreachable, match=r"^the check had no answer within 0\.2 s"):
            await session({}, port, check=True, duration_s=0.2)
