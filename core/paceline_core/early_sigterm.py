"""SIGTERM from a process's first moment; every component's `main` imports this before anything else, for its effect.

A container's program is the first process of its PID namespace, for which the kernel drops signals without a handler.
Until the real handlers are installed, seconds of imports later, a SIGTERM would be lost and the container would be
killed only after its whole grace period. So here the process ends at once with 143, the status that a shell shows for
SIGTERM: it has served nothing and drained nothing. `add_signal_handler` replaces this handler.
Known hole: the interpreter's own start, some hundredths of a second, comes before any handler.

This is a file of its own, because it must not import slow modules (asyncio, uvicorn).
"""

import os
import signal
from typing import NoReturn

STATUS = 128 + signal.SIGTERM


def _end(*_: object) -> NoReturn:
    """No clean-up: nothing has begun, and half-imported modules must not run."""
    os._exit(STATUS)


if os.getpid() == 1:
    signal.signal(signal.SIGTERM, _end)
