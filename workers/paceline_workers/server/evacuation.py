"""Evacuates streams, so that a gateway moves them to another worker: the open streams, and `POST /internal/evacuate`.

An evacuated stream ends with `: moved <reason>` in place of an error; a request that has not begun gets 503 `draining`.
Only requests from gateways are open here: no other client could continue a stream. Invariant: `evacuate` returns when
all chosen requests have left, or a moment after it ended those that remained.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator

from paceline_core.errors import Code, InvalidInput, RequestError
from paceline_core.wire import Evacuate, Evacuated, MoveReason, decode, encode
from paceline_workers.server.engine.client import EngineStream, Moved
from paceline_workers.server.http.exchange import BodyMemory, Holding, Receive, Reply, Scope, Send, read_body

BODY_LIMIT = 1 << 20
LEAVE_S = 2.0


class OpenStreams:
    """The requests of gateways in the engine, by the name that the gateway gave them."""

    def __init__(self) -> None:
        self._open: dict[EngineStream, tuple[str, asyncio.Event]] = {}

    @contextlib.contextmanager
    def entered(self, name: str, stream: EngineStream) -> Iterator[None]:
        """Registers the stream for the length of the block."""
        self._open[stream] = name, asyncio.Event()
        try:
            yield
        finally:
            self._open.pop(stream)[1].set()

    async def evacuate(self, names: Iterable[str] | None, seconds: float) -> int:
        """End the named streams, or all, that are still open after `seconds`; returns how many it ended."""
        wanted = None if names is None else set(names)
        chosen = {stream: left for stream, (name, left) in self._open.items() if wanted is None or name in wanted}
        await _all_set(chosen.values(), seconds)
        late = [stream for stream, left in chosen.items() if not left.is_set()]
        for stream in late:
            stream.fail(Moved(MoveReason.EVACUATE, "This request is moved to another worker; retry."))
        await _all_set(chosen.values(), LEAVE_S)
        return len(late)


class EvacuateRoute:
    """The route as an ASGI application."""

    def __init__(self, streams: OpenStreams, bodies: BodyMemory, write_limit_s: float) -> None:
        self._streams = streams
        self._bodies = bodies
        self._write_limit_s = write_limit_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Evacuate. Raises RequestError."""
        if not scope["caller"].trusted:
            raise RequestError(
                Code.INVALID_API_KEY, "This route is for bearers of a valid `x-paceline-internal-token` token."
            )
        holding = Holding(self._bodies, BODY_LIMIT)
        try:
            asked = decode(Evacuate, await read_body(scope["headers"], receive, holding))
        except InvalidInput as error:
            raise RequestError(Code.INVALID_REQUEST, f"{error}.", param=error.field or None) from None
        finally:
            holding.release()
        moved = await self._streams.evacuate(asked.requests, asked.deadline_ms / 1000)
        headers = {"content-type": "application/json"}
        await Reply(send, self._write_limit_s).whole(200, headers, encode(Evacuated(moved=moved)))


async def _all_set(events: Iterable[asyncio.Event], seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            for event in events:
                await event.wait()
