"""`python -m paceline_workers.engine --fd N`: one engine process, serving the API process at the other end of fd N.

It lives as long as that connection. While the loop cannot notice its end, during a long read or computation, a thread
does, so that no engine holds memory beside its successor. It ignores SIGINT and SIGTERM, because a terminal or a
supervisor sends them to the whole process group while the API process still drains the running requests.
"""

import argparse
import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import NoReturn

from paceline_core import config
from paceline_core.errors import InvalidInput, PacelineError
from paceline_core.telemetry import configure, get_logger
from paceline_workers.config import WorkerConfig
from paceline_workers.engine.backends.base import Backend, Pause
from paceline_workers.engine.backends.emulated import EmulatedBackend
from paceline_workers.engine.backends.gpu import toolchain
from paceline_workers.engine.channel import Channel, PeerGone
from paceline_workers.engine.loop import EngineLoop
from paceline_workers.engine.timer import SystemTimer, Timer, hurry
from paceline_workers.messages import Failed

_log = get_logger("paceline_workers.engine")
LINGER_S = 2.0
"""Time for the loop to notice by itself that its peer is gone."""
Load = Callable[[WorkerConfig, Timer, Pause], Backend]


def main(argv: Sequence[str] | None = None, load: Load | None = None) -> int:
    """Exit status: 0 if the peer has requested the end or is gone, else 1. `load` replaces `load_backend`."""
    parser = argparse.ArgumentParser(prog="python -m paceline_workers.engine", description="One engine process.")
    parser.add_argument("--fd", type=int, required=True, help="this process's end of a stream socketpair")
    descriptor = parser.parse_args(argv).fd
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    configure("engine", os.environ.get(config.LEVEL_VARIABLE, "INFO"))
    timer = SystemTimer()
    with socket.socket(fileno=descriptor) as sock:
        threading.Thread(target=_end_with_peer, args=(os.dup(descriptor),), daemon=True).start()
        return serve(Channel(sock, timer), timer, load or load_backend)


def serve(channel: Channel, timer: Timer, load: Load) -> int:
    """Load the configured backend and run the loop."""
    try:
        run(channel, timer, load)
    except PeerGone as error:
        _log.info("the engine ends", extra={"reason": str(error)})
    except PacelineError as error:
        _log.error("the engine cannot serve", extra={"reason": str(error)})
        return 1
    except Exception as error:  # noqa: BLE001 - the outermost frame: log one line, no traceback on the terminal
        _log.critical("the engine has a fault", exc_info=error)
        return 1
    return 0


def _end_with_peer(descriptor: int) -> NoReturn:
    """Wait for the peer's end, then end this process, even if its main thread is blocked."""
    ends = select.poll()
    ends.register(descriptor, 0)
    ends.poll()
    time.sleep(LINGER_S)
    os._exit(1)


def run(channel: Channel, timer: Timer, load: Load) -> NoReturn:
    """Load and serve; sends a failure to the API process before raising it."""
    try:
        settings = config.from_environment(WorkerConfig)
        backend = load(settings, timer, lambda seconds: pause(channel, timer, seconds))
    except PeerGone:
        raise
    except PacelineError as error:
        channel.send(Failed(error.message, error.field) if isinstance(error, InvalidInput) else Failed(str(error)))
        channel.flush()
        raise
    gc.collect()
    gc.freeze()  # a full collection would otherwise scan all of these long-lived objects, between two tokens
    EngineLoop(channel, backend, timer, prefix_cache=settings.engine.prefix_cache).run()


def pause(channel: Channel, timer: Timer, seconds: float) -> None:
    """Wait while watching the connection."""
    end = timer.now() + seconds
    while True:
        channel.wait(end - timer.now())
        if timer.now() >= end:
            return


def load_backend(settings: WorkerConfig, timer: Timer, pause: Pause) -> Backend:
    """Load the configured backend; imports torch only if the backend computes."""
    engine = settings.engine
    if engine.emulate is not None:
        _log.info("steps are emulated", extra={"punctual": hurry()})
        return EmulatedBackend.load(engine, engine.emulate, timer, pause)
    toolchain.allocate(os.environ)
    from paceline_workers.engine import devices  # noqa: PLC0415 - an emulated worker must not load torch

    if (gpu := devices.chosen(engine.device, devices.found())) is None:
        from paceline_workers.engine.backends.cpu.backend import CpuBackend  # noqa: PLC0415 - as above

        return CpuBackend.load(engine, settings.model, timer, pause)
    from paceline_workers.engine.backends.gpu.backend import GpuContext, TritonBackend  # noqa: PLC0415 - CPUs need no kernels

    return TritonBackend.load(engine, settings.model, timer, pause, GpuContext.open(gpu))


if __name__ == "__main__":
    sys.exit(main())
