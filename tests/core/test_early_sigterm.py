"""The four parts as the first process of a PID namespace, told to stop while they start: each ends at once."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import psutil
import pytest

from paceline_core.early_sigterm import STATUS

T = TypeVar("T")
LIMIT_S = 30.0
ALONE = ("unshare", "--map-root-user", "--pid", "--fork", "--kill-child", "--mount-proc")
PARTS = ("autoscaler", "gateway", "operator", "workers")
MOMENTS = ("paceline_core.early_sigterm", "asyncio", "pydantic", "paceline_core.telemetry")


class Starting:
    """A part as the first process of its namespace; it tells of each import on standard error."""

    def __init__(self, part: str, folder: Path) -> None:
        self._told = folder / "stderr"
        self.configuration = folder / "config.yaml"
        os.mkfifo(self.configuration)  # who asks for it waits for ever, with all imports done
        environment = os.environ | {"PACELINE_CONFIG": str(self.configuration), "PYTHONPROFILEIMPORTTIME": "1"}
        argv = [*ALONE, sys.executable, "-m", f"paceline_{part}.main"]
        with self._told.open("wb") as told:
            self.process = subprocess.Popen(argv, env=environment, stderr=told)

    def has_imported(self, module: str) -> bool:
        """Whether it says so."""
        return any(line.rpartition("|")[2].strip() == module for line in self._told.read_text().splitlines())

    def told_to_stop(self) -> int:
        """The exit status after SIGTERM to the process itself, of which `unshare` is the parent."""
        (inside,) = psutil.Process(self.process.pid).children()
        inside.send_signal(signal.SIGTERM)
        return self.process.wait(LIMIT_S)


@pytest.fixture(params=PARTS)
def starting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Starting]:
    part = Starting(request.param, tmp_path)
    yield part
    part.process.kill()
    part.process.wait(LIMIT_S)


def until(holds: Callable[[], T | None]) -> T:
    """What `holds()` gives once it gives something; waits at most LIMIT_S."""
    end = time.monotonic() + LIMIT_S
    while not (given := holds()):
        assert time.monotonic() < end, "what the test waits for did not come"
        time.sleep(0.002)
    return given


def asked(path: Path) -> int | None:
    """The writing end of the FIFO, once somebody reads it."""
    try:
        return os.open(path, os.O_WRONLY | os.O_NONBLOCK)
    except OSError:
        return None


@pytest.mark.real
@pytest.mark.parametrize("moment", MOMENTS)
def test_a_part_told_to_stop_between_its_imports_ends_at_once(starting: Starting, moment: str) -> None:
    until(lambda: starting.has_imported(moment))
    assert starting.told_to_stop() == STATUS


@pytest.mark.real
def test_a_part_told_to_stop_before_it_knows_its_configuration_ends_at_once(starting: Starting) -> None:
    end = until(lambda: asked(starting.configuration))
    assert starting.told_to_stop() == STATUS
    os.close(end)


def test_another_process_keeps_its_own_handler() -> None:
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
