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
    """Probes over one pool of connections."""

    def __init__(self) -> None:
        self._http = httpx.AsyncClient(trust_env=False)

    async def ask(self, host: str, port: int, probe: Probe) -> bool:
        """Whether the probe's path answered 200 within its limit."""
        try:
            answer = await self._http.get(f"http://{host}:{port}{probe.path}", timeout=probe.timeout_s)
        except httpx.HTTPError:
            return False
        return answer.status_code == httpx.codes.OK

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()
