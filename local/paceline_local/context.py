"""The context shared by every part of a run: its directory, ports and time, and the probes of its processes.

TCP ports of components are below the kernel's ephemeral range, so that no outgoing connection takes one first. They are
checked, not reserved: a port taken between the check and the child's bind ends the child; its next start gets another.
A probe is one GET that answers 200 or not.
"""

import contextlib
import os
import socket
from dataclasses import dataclass
from typing import Protocol

import httpx
import psutil

from paceline_core.clock import Clock
from paceline_core.errors import Unreachable
from paceline_core.launch import Probe
from paceline_local.rundir import RunDir

FIRST, LAST = 20_000, 32_000


def is_free(host: str, port: int) -> bool:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


class PortPool:
    """The ports of one run on one host; two supervisors begin their search at different ports."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._taken: set[int] = set()

    def take(self) -> int:
        start = os.getpid() * 61 % (LAST - FIRST)
        for step in range(LAST - FIRST):
            port = FIRST + (start + step) % (LAST - FIRST)
            if port not in self._taken and is_free(self._host, port):
                self._taken.add(port)
                return port
        raise Unreachable(f"no port between {FIRST} and {LAST} is free on {self._host}")

    def give_back(self, port: int) -> None:
        self._taken.discard(port)


def owner(port: int) -> str:
    """The process that listens there, as far as visible to this user: ` (process 4711, nginx)`, or empty."""
    with contextlib.suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            listens = connection.status == psutil.CONN_LISTEN and connection.laddr and connection.laddr.port == port
            if listens and connection.pid:
                return f" (process {connection.pid}, {psutil.Process(connection.pid).name()})"
    return ""


class Prober(Protocol):
    async def ask(self, host: str, port: int, probe: Probe) -> bool:
        """Whether the probe's path answered 200 within its limit."""
        ...


class HttpProber:
    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, host: str, port: int, probe: Probe) -> bool:
        try:
            answer = await self._http.get(f"http://{host}:{port}{probe.path}", timeout=probe.timeout_s)
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK


@dataclass(frozen=True, slots=True)
class RunContext:
    """A run's directory, ports and time, the prober of its processes, the gateway's URL, the parts' log level,
    and the origins of pages that may read answers."""

    run: RunDir
    ports: PortPool
    clock: Clock
    prober: Prober
    endpoint: str
    log_level: str = "INFO"
    cors_origins: tuple[str, ...] = ()
