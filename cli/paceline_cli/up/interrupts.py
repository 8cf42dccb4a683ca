"""Ctrl-C, SIGTERM and a closed terminal: the first asks for an orderly stop, the second ends everything now.

A closed terminal takes no more text, so that what is still said goes nowhere. Under nohup SIGHUP stays ignored.
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Iterable, Iterator

OUTPUTS = (1, 2)


@contextlib.contextmanager
def interrupts(first: Callable[[], None], second: Callable[[], None]) -> Iterator[None]:
    """Route the signals for the block; needs a running loop."""
    loop = asyncio.get_running_loop()
    calls, terminals = iter([first]), [output for output in OUTPUTS if os.isatty(output)]

    def on_signal() -> None:
        next(calls, second)()

    def on_hangup() -> None:
        _silence(terminals)
        on_signal()

    handlers = {signal.SIGINT: on_signal, signal.SIGTERM: on_signal}
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        handlers[signal.SIGHUP] = on_hangup
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


def _silence(outputs: Iterable[int]) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for output in outputs:
        os.dup2(nowhere, output)
    os.close(nowhere)
