"""Supervised children against real processes: small Python programs that live, end, refuse to end, or have children."""

import asyncio
import os
import signal
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.cli.waiting import until

from paceline_core.clock import SystemClock
from paceline_local.process import CANNOT_START, Command, Supervised

pytestmark = pytest.mark.real

SLEEP = "import time; time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
)
PARENT = """
    import subprocess, sys, time
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, flush=True)
    time.sleep(600)
"""


def command(program: str, log: Path) -> Command:
    return Command((sys.executable, "-c", textwrap.dedent(program)), {"GREETING": "hello"}, log)


@asynccontextmanager
async def supervised(
    make: Callable[[], Command], changed: Callable[[], None] = lambda: None
) -> AsyncIterator[Supervised]:
    process = Supervised("test", make, SystemClock(), changed)
    process.start()
    try:
        yield process
    finally:
        await process.stop(0.0)


def pid_of(process: Supervised) -> int:
    assert process.child is not None
    return process.child.pid


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


async def test_output_and_environment_arrive(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    program = "import os, sys; print(os.environ['GREETING']); print('oops', file=sys.stderr)"
    async with supervised(lambda: command(program, log)) as process:
        await until(lambda: process.last_exit is not None)
        assert process.last_exit == 0
    assert sorted(set(log.read_text().split())) == ["hello", "oops"]


async def test_a_killed_process_comes_back_after_its_rest(tmp_path: Path) -> None:
    async with supervised(lambda: command(SLEEP, tmp_path / "a.log")) as process:
        await until(lambda: process.child)
        first = pid_of(process)
        os.kill(first, signal.SIGKILL)
        await until(lambda: process.child is None)
        assert (process.last_exit, process.backoff.exits, process.backoff.delay_s) == (-signal.SIGKILL, 1, 0.5)
        await until(lambda: process.child)
        assert pid_of(process) != first


async def test_each_start_asks_for_its_command_anew(tmp_path: Path) -> None:
    asked: list[int] = []

    def make() -> Command:
        asked.append(len(asked))
        return command(f"print('start {len(asked)}')", tmp_path / "a.log")

    async with supervised(make):
        await until(lambda: len(asked) == 2)
    assert "start 1" in (tmp_path / "a.log").read_text()


async def test_stopping_asks_first(tmp_path: Path) -> None:
    program = """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
        print("up", flush=True)
        time.sleep(600)
    """
    log = tmp_path / "a.log"
    async with supervised(lambda: command(program, log)) as process:
        await until(lambda: log.exists() and log.read_text())
        await process.stop(30.0)
        assert process.last_exit == 7
        assert process.child is None


async def test_a_process_that_will_not_leave_is_killed_after_its_grace(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    async with supervised(lambda: command(STUBBORN, log)) as process:
        await until(lambda: log.exists() and log.read_text())
        await process.stop(0.2)
        assert process.last_exit == -signal.SIGKILL


async def test_nothing_of_its_group_is_left_when_a_process_has_ended(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    async with supervised(lambda: command(PARENT, log)) as process:
        await until(lambda: log.exists() and log.read_text().strip())
        grandchild = int(log.read_text())
        os.kill(pid_of(process), signal.SIGKILL)
        await until(lambda: not alive(grandchild))


async def test_a_program_that_does_not_exist_is_tried_with_rests(tmp_path: Path) -> None:
    missing = Command((str(tmp_path / "nothing"),), {}, tmp_path / "a.log")
    async with supervised(lambda: missing) as process:
        await until(lambda: process.backoff.exits == 2)
        assert process.last_exit == CANNOT_START


async def test_a_stop_during_the_rest_returns_at_once(tmp_path: Path) -> None:
    async with supervised(lambda: command("raise SystemExit(3)", tmp_path / "a.log")) as process:
        await until(lambda: process.backoff.delay_s >= 1.0)
        await process.stop(30.0)
        assert process.child is None


async def test_a_restart_brings_it_back(tmp_path: Path) -> None:
    async with supervised(lambda: command(SLEEP, tmp_path / "a.log")) as process:
        await until(lambda: process.child)
        first = pid_of(process)
        process.restart()
        await until(lambda: process.child and process.child.pid != first)


async def test_a_child_is_in_a_group_of_its_own_and_in_the_session_of_its_supervisor(tmp_path: Path) -> None:
    async with supervised(lambda: command(SLEEP, tmp_path / "a.log")) as process:
        await until(lambda: process.child)
        assert os.getpgid(pid_of(process)) == pid_of(process) != os.getpgid(0)
        assert os.getsid(pid_of(process)) == os.getsid(0)


async def test_ctrl_c_on_a_terminal_reaches_the_supervisor_alone(tmp_path: Path) -> None:
    log, told = tmp_path / "child.log", tmp_path / "told"
    child = """
        import signal, sys, time
        signal.signal(signal.SIGINT, lambda *_: print("interrupted", flush=True))
        signal.signal(signal.SIGTERM, lambda *_: (print("asked", flush=True), sys.exit(0)))
        print("up", flush=True)
        while True:
            time.sleep(600)
    """
    supervisor = f"""
        import asyncio, fcntl, pathlib, signal, sys, termios, textwrap
        from paceline_local.process import Command, Supervised
        from paceline_core.clock import SystemClock

        async def main():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            command = Command((sys.executable, "-c", textwrap.dedent({child!r})), {{}}, pathlib.Path({str(log)!r}))
            process, interrupted = Supervised("child", lambda: command, SystemClock(), lambda: None), asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupted.set)
            process.start()
            await interrupted.wait()
            await process.stop(30.0)
            pathlib.Path({str(told)!r}).write_text(str(process.last_exit))

        asyncio.run(main())
    """
    keyboard, terminal = os.openpty()
    argv = (sys.executable, "-c", textwrap.dedent(supervisor))
    parent = await asyncio.create_subprocess_exec(*argv, stdin=terminal, start_new_session=True)
    try:
        await until(lambda: log.exists() and "up" in log.read_text())
        os.write(keyboard, b"\x03")
        await until(lambda: told.exists() and told.read_text() == "0")
        assert log.read_text().split() == ["up", "asked"]
    finally:
        if parent.returncode is None:
            parent.kill()
        await parent.wait()
        os.close(terminal)
        os.close(keyboard)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel's parent-death signal is Linux's own")
async def test_no_child_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    supervisor = f"""
        import asyncio, pathlib, sys
        from paceline_local.process import Command, Supervised
        from paceline_core.clock import SystemClock

        async def main():
            command = Command((sys.executable, "-c", {SLEEP!r}), {{}}, pathlib.Path({str(tmp_path / "child.log")!r}))
            process = Supervised("child", lambda: command, SystemClock(), lambda: None)
            process.start()
            while process.child is None:
                await asyncio.sleep(0.01)
            print(process.child.pid, flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    argv = (sys.executable, "-c", textwrap.dedent(supervisor))
    parent = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    assert parent.stdout is not None
    child = int(await parent.stdout.readline())
    assert alive(child)
    parent.kill()
    await parent.wait()
    await until(lambda: not alive(child))
