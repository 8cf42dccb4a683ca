"""The HTTP side of a probe: one GET, 200 or not."""

from typing import Protocol

import httpx

from paceline_core.launch import Probe


class Prober(Protocol):
    """Asks a process how it is."""

    async def ask(self, host: str, port: int, probe: Probe) -> bool:
        """Whether the probe's path answered 200 within its limit."""
        ...


class HttpProber:
    """Probes over a client's connections."""

    def __init__(self, http: httpx.AsyncClient) -> None:
        self._http = http

    async def ask(self, host: str, port: int, probe: Probe) -> bool:
        """Whether the probe's path answered 200 within its limit."""
        try:
            answer = await self._http.get(f"http://{host}:{port}{probe.path}", timeout=probe.timeout_s)
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK
