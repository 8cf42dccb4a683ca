"""HEAD on the public port, read by h11: what GET would say, without its content (RFC 9110, 9.3.2)."""

import asyncio

import h11
import pytest
from tests.gateway.stand import PATIENCE_S, Stand

pytestmark = pytest.mark.real

Told = tuple[int, dict[bytes, bytes], bytes]


class Client:
    """One connection, one request after the other; a byte too many in an answer is a fault of the next one."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._peer = h11.Connection(h11.CLIENT)

    async def ask(self, method: str, path: str, key: str | None) -> Told:
        """Send it and read its whole answer."""
        headers = [("host", "a"), *([("authorization", f"Bearer {key}")] if key else [])]
        self._writer.write(self._peer.send(h11.Request(method=method, target=path, headers=headers)) or b"")
        self._peer.send(h11.EndOfMessage())
        head = await self._next()
        assert isinstance(head, h11.Response)
        body = b""
        while isinstance(event := await self._next(), h11.Data):
            body += bytes(event.data)
        assert isinstance(event, h11.EndOfMessage)
        self._peer.start_next_cycle()
        return head.status_code, dict(head.headers), body

    async def _next(self) -> h11.Event | type[h11.PAUSED]:
        async with asyncio.timeout(PATIENCE_S):
            while (event := self._peer.next_event()) is h11.NEED_DATA:
                self._peer.receive_data(await self._reader.read(1 << 16))
        assert not isinstance(event, type) or event is h11.PAUSED
        return event


async def test_head_says_what_get_does_without_its_content(stand: Stand) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    client = Client(reader, writer)
    for path in ("/health", "/v1/models", "/v1/models/chat", "/v1/models/none", "/nope"):
        for key in (stand.key, None):
            status, headers, body = await client.ask("GET", path, key)
            assert body
            again = await client.ask("HEAD", path, key)
            assert (again[0], again[1][b"content-length"], again[2]) == (status, headers[b"content-length"], b"")
    writer.close()


async def test_head_is_no_way_to_generate(stand: Stand) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", stand.port)
    client = Client(reader, writer)
    for path in ("/v1/chat/completions", "/tokenize", "/v1/embeddings"):
        status, _, body = await client.ask("HEAD", path, stand.key)
        assert (status, body) == (405, b"")
    writer.close()
