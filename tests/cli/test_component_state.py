"""A part of the control plane, as a real process that does nothing, and a prober that says what the test wants."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cli.waiting import until

from paceline_core.clock import SystemClock
from paceline_core.launch import Probe
from paceline_local import HOST
from paceline_local.context import PortPool, RunContext
from paceline_local.process import Component, ComponentSpec, failure
from paceline_local.rundir import run_dir

pytestmark = pytest.mark.real
READY = Probe("/readyz", period_s=1, timeout_s=1, failures=30)


class Told:
    """A prober that answers what it was told, and what the part said of its ends."""

    def __init__(self) -> None:
        self.healthy = False
        self.sentences: list[str] = []

    async def ask(self, host: str, port: int, probe: Probe) -> bool:
        return self.healthy

    def tell(self, name: str, sentence: str) -> None:
        self.sentences.append(sentence)


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
async def part(tmp_path: Path, told: Told) -> AsyncIterator[Component]:
    argv = (sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(600)")
    with run_dir(tmp_path) as run:
        site = RunContext(run, PortPool(HOST), SystemClock(), told, "http://127.0.0.1:8000")
        found = Component(ComponentSpec("gateway", argv, {}, 1, READY, grace_s=5.0), site, told.tell)
        found.start()
        try:
            yield found
        finally:
            await found.stop(5.0)


async def test_a_part_that_came_back_is_starting_until_it_says_that_it_is_ready(part: Component, told: Told) -> None:
    await until(lambda: part.state == "starting" and part.log.read_text())
    told.healthy = True
    await part.wait_ready()
    assert part.state == "running"
    told.healthy = False
    os.kill(int(part.log.read_text()), signal.SIGKILL)
    await until(lambda: part.state == "down")
    await until(lambda: part.state == "starting")
    assert told.sentences == ["gateway ended (signal 9); started again in 0.5 s"]
    told.healthy = True
    await until(lambda: part.state == "running")


async def test_a_part_that_is_told_to_leave_drains_and_is_stopped_then(part: Component, told: Told) -> None:
    told.healthy = True
    await part.wait_ready()
    leaving = asyncio.create_task(part.stop(5.0))
    await asyncio.sleep(0)
    assert part.state == "draining"
    await leaving
    assert part.state == "stopped"
    assert told.sentences == []


def test_a_failure_ends_with_the_programs_own_last_words(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text('{"level": "info"}\npaceline worker: model: /x is empty\n{"level": "info"}\n')
    assert str(failure("chat-main-1", "keeps ending", log)) == (
        f"chat-main-1 keeps ending: spec.model.source: /x is empty; its log is {log}"
    )


def test_a_program_without_words_of_its_own_shows_how_its_log_ends_and_then_the_reason(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text('{"level": "info"}\n')
    assert str(failure("gateway", "is not ready after 60 s", log)).splitlines() == [
        '    {"level": "info"}',
        f"gateway is not ready after 60 s; its log is {log}",
    ]
