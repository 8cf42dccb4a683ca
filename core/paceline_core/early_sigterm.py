"""SIGTERM from a process's first moment; every component's `main` imports this before anything else, for its effect.

The kernel drops a signal without a handler for the first process of a PID namespace, which is what a container's
program is. Until the real handlers are in place, seconds of imports later, an order to stop would be lost and the
container would be killed only after its whole grace. So here the process ends at once, with the status that a shell
shows for SIGTERM anywhere else: 143, for it served nothing and drained nothing. `add_signal_handler` replaces this.
Known hole: the interpreter's own start, some hundredths of a second, comes before any handler.

A file of its own, because it must not import what takes time (asyncio, uvicorn).
"""

import os
import signal
from typing import NoReturn

STATUS = 128 + signal.SIGTERM


def _end(*_: object) -> NoReturn:
    """No cleaning up: nothing has begun, and half-imported modules must not run."""
    os._exit(STATUS)


if os.getpid() == 1:
    signal.signal(signal.SIGTERM, _end)
