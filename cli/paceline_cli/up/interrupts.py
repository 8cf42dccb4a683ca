"""Ctrl-C and SIGTERM: the first asks for an orderly stop, the second ends everything now."""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterator

SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def interrupts(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Route both signals for the block; needs a running loop."""
    loop = asyncio.get_running_loop()
    calls = iter([first])

    def on_signal() -> None:
        next(calls, second)()

    for number in SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
