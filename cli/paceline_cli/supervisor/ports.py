"""TCP ports for the parts: below the kernel's ephemeral range, so that no outgoing connection takes one first.

Checked, not reserved: a port taken between the check and the child's bind ends the child; its next start gets another.
"""

import contextlib
import os
import socket

import psutil

from paceline_core.errors import Unreachable

FIRST, LAST = 20_000, 32_000


def is_free(host: str, port: int) -> bool:
    """Whether a server could listen there now."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class PortPool:
    """The ports of one run on one host; two supervisors begin their search at different places."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._taken: set[int] = set()

    def take(self) -> int:
        """A free port that nobody else of this run has; raises Unreachable when there is none."""
        start = os.getpid() * 61 % (LAST - FIRST)
        for step in range(LAST - FIRST):
            port = FIRST + (start + step) % (LAST - FIRST)
            if port not in self._taken and is_free(self._host, port):
                self._taken.add(port)
                return port
        raise Unreachable(f"no port between {FIRST} and {LAST} is free on {self._host}")

    def give_back(self, port: int) -> None:
        """The port may be taken again."""
        self._taken.discard(port)


def owner(port: int) -> str:
    """Who listens there, as far as this user may know: ` (process 4711, nginx)`, or nothing."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                return f" (process {connection.pid}, {psutil.Process(connection.pid).name()})"
    return ""
