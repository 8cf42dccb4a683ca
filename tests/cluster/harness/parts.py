"""The processes of a run: started with a log each, and waited for with a limit and the reason when they fail."""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

TAIL_LINES = 25
STOP_LIMIT_S = 15.0


class PartFailed(Exception):
    """A part of the cluster ended or was not ready in time; the text holds the last lines of its log."""


@dataclass(slots=True)
class Part:
    """One process that can be stopped and started again; its log grows over all its lives."""

    name: str
    argv: Sequence[str]
    log: Path
    environment: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, in a session of its own so that a terminal's Ctrl-C is its owner's to handle."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.argv,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, **self.environment},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """The id of the running process."""
        assert self.process is not None, f"{self.name} was never started"
        return self.process.pid

    def running(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.process is not None and self.process.poll() is None

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ask it to end, and end it when it does not."""
        if self.process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(how)
        try:
            self.process.wait(STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_LIMIT_S)

    def kill(self) -> None:
        """End it without a warning."""
        self.stop(signal.SIGKILL)

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines it wrote."""
        text = self.log.read_text(errors="replace") if self.log.exists() else ""
        return "\n".join(text.splitlines()[-lines:])


def wait_until(
    what: str, ready: Callable[[], bool], parts: Sequence[Part], limit_s: float, pause_s: float = 0.05
) -> None:
    """Wait until `ready`; fail at once when one of `parts` ends, and with their tails at the limit."""
    end = time.monotonic() + limit_s
    while not ready():
        if ended := [part for part in parts if not part.running()]:
            raise PartFailed(f"waiting until {what}: {_ends(ended[0])}")
        if time.monotonic() > end:
            tails = "\n".join(_ends(part) for part in parts)
            raise PartFailed(f"waited {limit_s:.0f} s and not seen: {what}\n{tails}")
        time.sleep(pause_s)


def _ends(part: Part) -> str:
    code = part.process.poll() if part.process else None
    state = "runs" if code is None else f"ended with {code}"
    return f"{part.name} {state}; the last lines of {part.log}:\n{part.tail()}"
