"""Calls workers' `/internal/retire`. A call that fails for whatever reason is one that a worker did not accept."""

import asyncio

import httpx

from paceline_core.auth import Signer
from paceline_core.auth.internal_token import HEADER
from paceline_core.clock import Clock
from paceline_core.kube import Endpoint
from paceline_core.telemetry import get_logger
from paceline_core.wire import RETIRE_LIMIT_S, RETIRE_PATH, Retire, encode
from paceline_core.wire.stream import worker_url

CALL_LIMIT_S = 1.0
"""For one call: a pass over a service waits for it."""
_log = get_logger(__name__)


class RetireClient:
    """Calls workers of any service with an internal token for it."""

    def __init__(self, http: httpx.AsyncClient, signer: Signer, clock: Clock) -> None:
        self._http = http
        self._signer = signer
        self._clock = clock

    async def retire(self, service: str, worker: Endpoint) -> bool:
        """Retire a worker, or keep it retired; returns whether it accepted that."""
        return await self._call("POST", service, worker, encode(Retire(seconds=RETIRE_LIMIT_S)))

    async def unretire(self, service: str, worker: Endpoint) -> bool:
        """Have a worker serve again; returns whether it accepted that."""
        return await self._call("DELETE", service, worker, None)

    async def _call(self, method: str, service: str, worker: Endpoint, body: bytes | None) -> bool:
        headers = {HEADER: self._signer.token(service, self._clock.utc())}
        try:
            async with asyncio.timeout(CALL_LIMIT_S):
                url = worker_url(worker.host, worker.port, RETIRE_PATH)
                answer = await self._http.request(method, url, content=body, headers=headers)
        except (httpx.HTTPError, TimeoutError) as error:
            reason = str(error) or type(error).__name__
        else:
            if answer.status_code == httpx.codes.OK:
                return True
            reason = f"it answered {answer.status_code}"
        _log.info("a worker cannot be retired", extra={"worker": worker.name, "method": method, "reason": reason})
        return False
