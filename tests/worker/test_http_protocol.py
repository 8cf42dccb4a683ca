"""Whatever comes over a worker's port is answered with an error object, in bounded memory."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import LIMIT_S, listening, running
from tests.worker.scripted_engine import Script

HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: a\r\n"


@pytest.fixture
async def address(folder: Path, reply: list[int]) -> AsyncIterator[str]:
    async with running(Script(reply=reply), folder=folder) as rig, listening(rig) as address:
        yield address


async def said(address: str, *writes: bytes) -> tuple[bytes, dict[bytes, bytes], Any]:
    """Status, headers and body of the answer to these bytes, once the connection has ended."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(LIMIT_S):
        for data in writes:
            writer.write(data)
            await writer.drain()
        whole = await reader.read()
    writer.close()
    head, _, body = whole.partition(b"\r\n\r\n")
    status, *lines = head.split(b"\r\n")
    return status.split()[1], dict(line.split(b": ", 1) for line in lines), json.loads(body)["error"]


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"nonsense\r\n\r\n",
        HEAD + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        HEAD + b"content-length: 1\r\ncontent-length: 2\r\n\r\nxx",
        HEAD + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
    ],
)
async def test_what_is_no_http_is_refused_with_an_error_object(address: str, request_bytes: bytes) -> None:
    status, headers, error = await said(address, request_bytes)
    assert (status, error["code"]) == (b"400", "invalid_request")
    assert error["message"].startswith("The request is not valid HTTP/1.1: ")
    assert headers[b"x-request-id"]
    assert headers[b"content-type"] == b"application/json"


@pytest.mark.parametrize(
    "more",
    [
        [b"x-long: " + b"a" * 200_000 + b"\r\n\r\n"],
        [b"x-long: " + b"a" * 1_000_000],
        [b"".join(b"x-%d: a\r\n" % number for number in range(9000)) + b"\r\n"],
        [b"".join(b"x-%d: a\r\n" % number for number in range(2000)) + b"\r\n"],
    ],
    ids=["one long header", "a header without an end", "9,000 headers", "2,000 headers"],
)
async def test_a_head_over_the_limit_is_refused(address: str, more: list[bytes]) -> None:
    status, _, error = await said(address, HEAD, *more)
    assert (status, error["code"]) == (b"431", "headers_too_large")


async def test_a_large_head_within_the_limit_passes(address: str) -> None:
    headers = b"".join(b"x-%d: %s\r\n" % (number, b"a" * 500) for number in range(100))
    body = b'{"model": "nobody", "prompt": "a"}'
    status, _, error = await said(address, HEAD + headers, b"connection: close\r\ncontent-length: 34\r\n\r\n" + body)
    assert (status, error["code"]) == (b"404", "model_not_found")


async def test_large_bodies_in_a_row_are_no_heads(address: str) -> None:
    one = HEAD + b"content-length: 300034\r\n\r\n" + b'{"model": "nobody", "prompt": "a"}' + b" " * 300_000
    last = one.replace(b"host: a\r\n", b"host: a\r\nconnection: close\r\n")
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    async with asyncio.timeout(LIMIT_S):
        writer.write(one + one + last)
        answers = await reader.read()
    writer.close()
    assert answers.count(b"HTTP/1.1 404") == 3
