import asyncio
import os
import signal
from collections.abc import Iterator

import pytest

from paceline_cli.up.session import interrupts


@pytest.fixture(autouse=True)
def _no_nohup() -> Iterator[None]:
    """The tests themselves may run under it, which ignores SIGHUP."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(
    "pair", [(signal.SIGINT, signal.SIGINT), (signal.SIGTERM, signal.SIGINT), (signal.SIGHUP, signal.SIGTERM)]
)
async def test_the_first_signal_asks_and_every_further_one_insists(pair: tuple[signal.Signals, signal.Signals]) -> None:
    calls: list[str] = []
    called = asyncio.Event()

    def first() -> None:
        calls.append("first")
        called.set()

    def second() -> None:
        calls.append("second")
        called.set()

    with interrupts(first, second):
        for number in (*pair, signal.SIGTERM):
            called.clear()
            os.kill(os.getpid(), number)
            async with asyncio.timeout(60):
                await called.wait()
    assert calls == ["first", "second", "second"]


async def test_under_nohup_a_closed_terminal_changes_nothing() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with interrupts(lambda: None, lambda: None):
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


async def test_afterwards_the_signals_are_pythons_again() -> None:
    with interrupts(lambda: None, lambda: None):
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
