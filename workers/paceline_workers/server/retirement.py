"""Retires this worker for a time, at the autoscaler's request: `POST` and `DELETE /internal/retire`.

The autoscaler does so before it lowers a scale, and renews it until the worker is told to end. If it changes its mind
it ends the time; if it dies, the time ends by itself. In both cases the worker serves as before. Only an autoscaler's
token is accepted. A worker that drains for good stays as it is.
"""

import asyncio

from paceline_core.errors import Code, InvalidInput, RequestError
from paceline_core.telemetry import get_logger
from paceline_core.wire import Retire, Retired, decode, encode
from paceline_workers.server.http.exchange import BodyMemory, Holding, Receive, Reply, Scope, Send, read_body
from paceline_workers.server.load_report import LoadPublisher
from paceline_workers.server.request_handler import InFlightLimiter

BODY_LIMIT = 1 << 12
_log = get_logger(__name__)


class Retirement:
    """While it is `active`, new requests are refused and the load report says so."""

    def __init__(self, gate: InFlightLimiter, board: LoadPublisher) -> None:
        self._gate = gate
        self._board = board
        self._end: asyncio.TimerHandle | None = None

    @property
    def active(self) -> bool:
        """Whether the worker is retired now."""
        return self._end is not None

    def begin(self, seconds: float) -> None:
        """Retire the worker for this time from now, whatever was left of an earlier time."""
        if self._gate.draining:
            return
        if self._end is not None:
            self._end.cancel()
        else:
            _log.info("retired", extra={"open": self._gate.open})
        self._end = asyncio.get_running_loop().call_later(seconds, self._lapse)
        self._set(True)

    def end(self) -> None:
        """Serve again; does nothing if the worker is not retired."""
        if self._end is not None:
            _log.info("not retired any more", extra={"open": self._gate.open})
            self._end.cancel()
            self._end = None
            self._set(False)

    def _lapse(self) -> None:
        _log.warning("nobody has renewed the retirement: it is over")
        self.end()

    def _set(self, retired: bool) -> None:
        self._gate.retired = retired
        self._board.retire(retired=retired)


class RetireRoute:
    """Both requests as an ASGI application."""

    def __init__(self, retirement: Retirement, bodies: BodyMemory, write_limit_s: float) -> None:
        self._retirement = retirement
        self._bodies = bodies
        self._write_limit_s = write_limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Retire the worker, or end that. Raises RequestError."""
        if not scope["caller"].autoscaler:
            words = "This route is for the autoscaler: bring its valid `x-paceline-internal-token` token."
            raise RequestError(Code.INVALID_API_KEY, words)
        if scope["method"] == "DELETE":
            self._retirement.end()
        else:
            self._retirement.begin((await self._read(scope, receive)).seconds)
        answer = encode(Retired(retired=self._retirement.active))
        await Reply(send, self._write_limit_s).whole(200, {"content-type": "application/json"}, answer)

    async def _read(self, scope: Scope, receive: Receive) -> Retire:
        holding = Holding(self._bodies, BODY_LIMIT)
        try:
            return decode(Retire, await read_body(scope["headers"], receive, holding))
        except InvalidInput as error:
            raise RequestError(Code.INVALID_REQUEST, f"{error}.", param=error.field or None) from None
        finally:
            holding.release()
