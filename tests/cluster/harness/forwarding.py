"""The owner's end of the forwarder: ask for a door, get a local port."""

import os
import select
import subprocess
import sys
import threading
from dataclasses import dataclass, field

from tests.cluster.harness.parts import PartFailed
from tests.cluster.harness.runs import CHECKOUT, Run
from tests.cluster.harness.space import Space

ANSWER_LIMIT_S = 15.0


@dataclass(slots=True)
class Forwarding:
    """The forwarder of a run; asking twice for one address gives one port."""

    process: subprocess.Popen[str]
    _ports: dict[tuple[str, int], int] = field(default_factory=dict)
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def port(self, host: str, port: int) -> int:
        """The port on this machine's loopback that leads to `host:port` inside."""
        with self._turn:
            if (host, port) not in self._ports:
                self._ports[host, port] = self._ask(host, port)
            return self._ports[host, port]

    def _ask(self, host: str, port: int) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{host} {port}\n")
        self.process.stdin.flush()
        if not select.select([self.process.stdout], [], [], ANSWER_LIMIT_S)[0]:
            raise PartFailed(f"the forwarder gave no port for {host}:{port} within {ANSWER_LIMIT_S:.0f} s")
        answer = self.process.stdout.readline()
        if not answer:
            raise PartFailed(f"the forwarder ended with {self.process.wait(5)}; its errors are in logs/forwarder.log")
        return int(answer)

    def close(self) -> None:
        """End the forwarder and every connection through it."""
        self.process.kill()
        self.process.wait(10)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()


def open_forwarding(space: Space, run: Run) -> Forwarding:
    """Start the forwarder of a run."""
    argv = [sys.executable, "-m", "tests.cluster.harness.forwarder", f"/proc/{space.holder.pid}/ns/net"]
    with (run.folder / "logs" / "forwarder.log").open("ab") as log:
        return Forwarding(
            subprocess.Popen(
                argv,
                cwd=CHECKOUT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **run.environment()},
                start_new_session=True,
            )
        )
