"""The process that checks grammars: a bomb ends its own fork, others get verdicts, and the loop turns meanwhile."""

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.worker.harness import eventually, running
from tests.worker.scripted_engine import Script

from paceline_workers import demo
from paceline_workers.server.grammar.checks import GrammarLink, program
from paceline_workers.server.grammar.process import CheckResult

pytestmark = pytest.mark.real
MULTIPLES = {"type": "object", "properties": {f"p{size}": {"multipleOf": size} for size in range(9700, 10_000)}}
"""Each of them may be; together they take 10 s."""
BOMB = f"json_schema:{json.dumps(MULTIPLES)}"
NAMES: dict[str, dict[str, str]] = {f"property_number_{number}": {} for number in range(1000)}
LARGE = f"json_schema:{json.dumps({'type': 'object', 'properties': NAMES, 'required': [*NAMES]})}"
SMALL = "regex:[ab]{3}"
BODY = {"model": "chat", "prompt": "x", "max_tokens": 4, "structured_outputs": {"json": MULTIPLES}}


@pytest.fixture
async def link() -> AsyncIterator[GrammarLink]:
    """A process whose checks have 50 ms of a CPU each."""
    link = GrammarLink((*program(demo.FOLDER), "--cpu-seconds", "0.05"))
    yield link
    await link.close()


async def test_a_check_that_takes_too_long_is_ended_and_only_that_one(link: GrammarLink) -> None:
    """The loop turns while it runs: more often than a check that held the loop would let it."""
    turns = 0

    async def turn() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.001)
            turns += 1

    assert await link.check(SMALL) == (CheckResult.VERDICT, "")
    ticker = asyncio.create_task(turn())
    ends = await asyncio.gather(link.check(BOMB), link.check(SMALL), link.check("regex:("))
    ticker.cancel()
    assert [answer for answer, _ in ends] == [CheckResult.TIME, CheckResult.VERDICT, CheckResult.VERDICT]
    assert "unclosed group" in ends[2][1]
    assert turns > 5
    assert link.started == 1


async def test_a_check_that_takes_too_much_memory_is_ended() -> None:
    link = GrammarLink((*program(demo.FOLDER), "--memory-bytes", str(4 << 20)))
    assert (await link.check(LARGE))[0] is CheckResult.MEMORY
    assert await link.check(SMALL) == (CheckResult.VERDICT, "")
    assert link.started == 1
    await link.close()


async def test_the_verdict_is_that_of_the_models_own_tokens(tmp_path: Path) -> None:
    """Without a tokenizer that can be read, bytes stand for tokens."""
    link = GrammarLink(program(tmp_path))
    assert await link.check(SMALL) == (CheckResult.VERDICT, "")
    await link.close()


async def test_a_process_that_ended_is_started_again(link: GrammarLink) -> None:
    assert await link.check(SMALL) == (CheckResult.VERDICT, "")
    assert link.pid
    os.kill(link.pid, signal.SIGKILL)
    ends = [await link.check(SMALL) for _ in range(2)]
    assert (CheckResult.VERDICT, "") in ends
    assert link.started == 2


async def test_a_check_that_fails_late_leaves_the_next_process_alone() -> None:
    """Its fork outlives the process that it was asked of."""
    link = GrammarLink((*program(demo.FOLDER), "--cpu-seconds", "0.5"))
    assert await link.check(SMALL) == (CheckResult.VERDICT, "")
    children = Path(f"/proc/{link.pid}/task/{link.pid}/children")
    late = asyncio.create_task(link.check(BOMB))
    await eventually(lambda: bool(children.read_text()))
    await link.close()
    await link.start()
    fresh = link.pid
    assert (await late)[0] is CheckResult.FAILED
    assert link.pid == fresh
    await link.close()


async def test_a_program_that_cannot_run_gives_no_verdict() -> None:
    link = GrammarLink(("/no/such/program",))
    assert (await link.check(SMALL))[0] is CheckResult.FAILED
    await link.close()


async def test_a_bomb_is_refused_by_name_and_holds_up_nobody(tmp_path: Path) -> None:
    async with running(Script(reply=[5, 6]), folder=tmp_path) as rig:
        bomb = asyncio.create_task(rig.http.post("/v1/completions", json=BODY))
        await eventually(lambda: rig.worker.link.started)
        assert (await rig.http.get("/healthz")).status_code == 200
        assert not bomb.done()
        answer = (await bomb).json()
        assert answer["error"]["param"] == "structured_outputs"
        assert "ask for less of it" in answer["error"]["message"]  # of CPU time or of memory, as the machine is quick
        page = (await rig.http.get("/metrics")).text
    ended = [line for line in page.splitlines() if "grammar_checks_total{" in line and not line.endswith(" 0.0")]
    assert [line.endswith(" 1.0") and ('"time"' in line or '"memory"' in line) for line in ended] == [True]


async def test_a_process_that_could_not_be_started_is_started_by_the_next_check(tmp_path: Path) -> None:
    link, late = GrammarLink((str(tmp_path / "late"),)), tmp_path / "late"
    with pytest.raises(OSError, match="late"):
        await link.start()
    late.write_text(f'#!/bin/sh\nexec {" ".join(program(demo.FOLDER))} "$@"\n')
    late.chmod(0o755)
    assert await link.check(SMALL) == (CheckResult.VERDICT, "")
    await link.close()
