"""`/debug/decisions`: what it reads back from memory and files, and how it refuses."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.autoscaler.factories import goal, observation
from tests.autoscaler.ledgers import keep
from tests.autoscaler.test_controller import Rig

from paceline_autoscaler.process import make_app
from paceline_core.clock import rfc3339

DAY_S = 86_400


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """An autoscaler that was started again after 100 entries about one service, one in ten minutes; now is the last."""
    made, earlier = Rig(tmp_path), Rig(tmp_path)
    made.clock.advance(990 * 60.0)
    for number in range(100):
        service = goal(budget_gpus=None, drain_limit_s=30.0 + number // 50)
        keep(earlier.deps.ledger, observation(now=earlier.deps.now() + 600 * number, goal=service))
    yield made
    await made.autoscaler.close()


async def ask(rig: Rig, **query: Any) -> Any:
    transport = httpx.ASGITransport(make_app(rig.autoscaler, rig.deps))
    async with httpx.AsyncClient(transport=transport, base_url="http://autoscaler") as http:
        answer = await http.get("/debug/decisions", params=query)
    return answer.json() if answer.is_success else answer


async def test_a_service_is_read_back_through_the_files_of_earlier_processes(rig: Rig) -> None:
    entries = await ask(rig, service="default/chat", limit=200)
    assert len(entries) == 100
    assert entries == sorted(entries, key=lambda entry: entry["at"], reverse=True)
    assert entries[0]["observation"]["goal"] != entries[-1]["observation"]["goal"]
    assert await ask(rig, service="default/chat", limit=3) == entries[:3]
    assert len(await ask(rig, service="default/chat")) == 50


async def test_since_is_a_time_or_seconds_before_now(rig: Rig) -> None:
    assert len(await ask(rig, service="default/chat", since=3600, limit=200)) == 7
    moment = rfc3339(datetime.fromtimestamp(rig.deps.now() - 3600, UTC))
    assert len(await ask(rig, service="default/chat", since=moment, limit=200)) == 7
    assert len(await ask(rig, service="default/chat", since=DAY_S, limit=2000)) == 100


async def test_changes_are_told_apart_and_inputs_are_left_out_where_nobody_needs_them(rig: Rig) -> None:
    (first,) = await ask(rig, service="default/chat", since=DAY_S, kind="change", inputs=False)
    assert first.keys() == {"time", "at", "service", "kind", "held", "decision"}


async def test_without_a_service_memory_has_the_newest_over_all(rig: Rig) -> None:
    assert await ask(rig) == []
    for name in ("a", "b"):
        keep(rig.deps.ledger, observation(now=rig.deps.now(), goal=goal(service=f"default/{name}")))
    assert [entry["service"] for entry in await ask(rig)] == ["default/b", "default/a"]
    assert await ask(rig, service="default/none") == []


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("service", "chat"),
        ("service", "../chat"),
        ("service", "default/../../etc/passwd"),
        ("limit", 0),
        ("limit", 2001),
        ("since", "yesterday"),
        ("since", "2026-01-31T12:00:00"),
        ("since", "-5"),
        ("since", "nan"),
        ("kind", "hold"),
        ("inputs", "some"),
    ],
)
async def test_a_bad_value_is_refused_by_name(rig: Rig, field: str, value: Any) -> None:
    answer = await ask(rig, **{field: value})
    assert answer.status_code == 422
    assert [problem["loc"] for problem in answer.json()["detail"]] == [["query", field]]
