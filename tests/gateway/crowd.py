"""Clients that ask one request after another, and whether what they got is whole."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable

import httpx
from tests.gateway.stand import STREAM, Stand, until


def whole(response: httpx.Response) -> bool:
    """Whether a stream came to its own end."""
    lines = [line for line in response.text.splitlines() if line.startswith("data: {")]
    return (
        response.status_code == 200
        and response.text.endswith("data: [DONE]\n\n")
        and not any("error" in json.loads(line.removeprefix("data: ")) for line in lines)
    )


@contextlib.asynccontextmanager
async def load(stand: Stand, answers: list[httpx.Response], clients: int = 6) -> AsyncIterator[None]:
    """So many clients for as long as the block lasts; each ends its last request."""
    stop = asyncio.Event()

    async def client() -> None:
        while not stop.is_set():
            answers.append(await stand.client.post("/v1/chat/completions", json=STREAM))

    crowd = asyncio.gather(*(client() for _ in range(clients)))
    try:
        yield
    finally:
        stop.set()
        await crowd


async def more(count: Callable[[], int]) -> None:
    """Wait until something has been counted ten times more."""
    enough = count() + 10
    await until(lambda: count() >= enough)
