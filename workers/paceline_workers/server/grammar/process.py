"""`python -m paceline_workers.server.grammar.process --fd N`: checks grammars, each in a process of its own.

The grammar library may take minutes and gigabytes over 300 bytes, and nothing can interrupt it within a process. So
this process reads the model's tokenizer once and forks for each check. The fork shares that memory; the kernel limits
its CPU time (SIGPROF) and its address space (RLIMIT_AS); it ends with its verdict. The limit is CPU time, so that a
busy machine does not change a verdict.

For each check the API process sends one end of a new socketpair over fd N. It writes the grammar there, then EOF; the
fork answers with a byte (`CheckResult`) and the reason in UTF-8. This process ends when fd N reads EOF, its forks
within their time limit.
"""

import argparse
import contextlib
import gc
import os
import resource
import selectors
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import NoReturn

from llguidance import LLTokenizer

from paceline_workers.engine.sampling import grammar
from paceline_workers.model_source import read_text

CPU_S = 1.0
MEMORY_BYTES = 64 << 20
"""Address space of a check, beyond that of the fork at its start."""
REASON = 2048
"""The most characters of a reason: the library quotes the grammar."""
_NICE = 10
"""Lower priority than the engine and the API process: a check may wait for a CPU, a stream may not."""
_READ = 1 << 16
_OUT_OF_MEMORY = 3
Check = Callable[[str], str]


class CheckResult(IntEnum):
    """The first byte of an answer."""

    VERDICT = 0
    TIME = 1
    MEMORY = 2
    FAILED = 3


@dataclass(frozen=True, slots=True)
class ForkLimits:
    """Limits of one check."""

    cpu_s: float = CPU_S
    memory_bytes: int = MEMORY_BYTES


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until the API process closes its end of the socket."""
    parser = argparse.ArgumentParser(prog="python -m paceline_workers.server.grammar.process")
    parser.add_argument("--fd", type=int, required=True, help="this process's end of a stream socketpair")
    parser.add_argument("--tokenizer", type=Path, help="the model's tokenizer.json; bytes stand for tokens without it")
    parser.add_argument("--cpu-seconds", type=float, default=CPU_S)
    parser.add_argument("--memory-bytes", type=int, default=MEMORY_BYTES)
    given = parser.parse_args(argv)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    os.nice(_NICE)
    check = partial(grammar.check, tokenizer=_tokenizer(given.tokenizer))
    gc.freeze()
    with socket.socket(fileno=given.fd) as control:
        _CheckProcesses(control, check, ForkLimits(given.cpu_seconds, given.memory_bytes)).serve()
    return 0


class _CheckProcesses:
    """The running checks by process id, each with the socket for its answer."""

    def __init__(self, control: socket.socket, check: Check, bounds: ForkLimits) -> None:
        self._control = control
        self._check = check
        self._bounds = bounds
        self._running: dict[int, socket.socket] = {}
        self._ends, self._signal_end = os.pipe()
        for descriptor in (self._ends, self._signal_end):
            os.set_blocking(descriptor, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._signal_end, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Fork for each check until EOF."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._control, selectors.EVENT_READ)
            selector.register(self._ends, selectors.EVENT_READ)
            while True:
                ready = {key.fileobj for key, _ in selector.select()}
                if self._ends in ready:
                    os.read(self._ends, _READ)
                    self._reap()
                if self._control in ready:
                    message, descriptors, _, _ = socket.recv_fds(self._control, 1, 1)
                    if not message:
                        return
                    self._fork(socket.socket(fileno=descriptors[0]))

    def _fork(self, sock: socket.socket) -> None:
        process = os.fork()
        if process:
            self._running[process] = sock
            return
        signal.set_wakeup_fd(-1)
        self._control.close()
        for other in self._running.values():
            other.close()
        _run(sock, self._check, self._bounds)

    def _reap(self) -> None:
        while self._running:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            with self._running.pop(process) as sock:
                if status:
                    _send(sock, bytes([_answer(os.waitstatus_to_exitcode(status))]))


def _answer(exit_code: int) -> CheckResult:
    """The result of a check that ended without a verdict, by its exit code. The library aborts when out of memory."""
    if exit_code == -signal.SIGPROF:
        return CheckResult.TIME
    return CheckResult.MEMORY if exit_code in (_OUT_OF_MEMORY, -signal.SIGABRT, -signal.SIGSEGV) else CheckResult.FAILED


def _run(sock: socket.socket, check: Check, bounds: ForkLimits) -> NoReturn:
    status = 1
    try:
        text = b"".join(iter(lambda: sock.recv(_READ), b"")).decode()
        _bound(bounds)
        reason = check(text)
        _send(sock, bytes([CheckResult.VERDICT]) + reason[:REASON].encode())
        status = 0
    except MemoryError:
        status = _OUT_OF_MEMORY
    finally:
        os._exit(status)


def _bound(bounds: ForkLimits) -> None:
    """Have the kernel end this process when it exceeds these limits."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(FileNotFoundError):  # Linux has it; elsewhere the CPU time limit also bounds memory
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + bounds.memory_bytes,) * 2)
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_PROF, bounds.cpu_s)


def _send(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except OSError:
        return  # the API process has closed its end


def _tokenizer(path: Path | None) -> LLTokenizer | None:
    try:
        return None if path is None else LLTokenizer(read_text(path))
    except (OSError, ValueError):
        return None  # the engine reports this for each request that needs it


if __name__ == "__main__":
    sys.exit(main())
