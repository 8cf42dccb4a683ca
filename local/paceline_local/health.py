"""A worker's probes as the kubelet judges them, over time instead of counts: pure.

Until the first readiness the startup limit alone can fail it; afterwards a readiness miss takes it out of the endpoints
and a liveness miss restarts it. A probe has failed when it missed for `failures` periods.
A probe is one GET, answered with 200 or not.
"""

from dataclasses import dataclass, replace
from typing import Protocol

import httpx

from paceline_core.launch import Probe, WorkerLaunch


@dataclass(frozen=True, slots=True)
class Health:
    """The probe history of one started process; times in seconds of a monotonic clock."""

    born: float
    started: bool = False
    ready: bool = False
    last_alive: float = 0.0
    last_ready: float = 0.0

    def after(self, launch: WorkerLaunch, now: float, *, alive: bool, ready: bool) -> "Health":
        last_ready = now if ready else self.last_ready
        return replace(
            self,
            started=self.started or ready,
            ready=ready or (self.ready and now - last_ready < patience(launch.readiness)),
            last_alive=now if alive or ready else self.last_alive,
            last_ready=last_ready,
        )

    def complaint(self, launch: WorkerLaunch, now: float) -> str | None:
        if not self.started:
            limit = patience(launch.startup)
            return f"not ready {limit:.0f} s after its start" if now - self.born >= limit else None
        limit = patience(launch.liveness)
        return f"its engine has not shown life for {limit:.0f} s" if now - self.last_alive >= limit else None


def patience(probe: Probe) -> float:
    """Seconds of misses after which a probe has failed."""
    return float(probe.period_s * probe.failures)


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
