"""Waiting for what another thread does, with a limit."""

import time
from collections.abc import Callable


def until(done: Callable[[], object], limit_s: float) -> None:
    """Ask again and again; raises TimeoutError."""
    end = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("what the test waits for did not come")
        time.sleep(0.001)
