"""What a team writes in an afternoon: FastAPI and httpx, round robin, streams passed on as they come.

Runs in a virtual environment of its own, in a folder where the file `upstreams` names one URL a line.
"""

import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI, Request
from fastapi.responses import Response, StreamingResponse

app = FastAPI()
_upstreams = itertools.cycle(Path("upstreams").read_text().split())
_client = httpx.AsyncClient(timeout=None, limits=httpx.Limits(max_connections=None), trust_env=False)


@app.post("/v1/chat/completions")
async def chat(request: Request) -> Response:
    """Pass one request on."""
    body: dict[str, Any] = json.loads(await request.body())
    url = f"{next(_upstreams)}/v1/chat/completions"
    if not body.get("stream"):
        answer = await _client.post(url, json=body)
        return Response(answer.content, answer.status_code, media_type="application/json")
    response = await _client.send(_client.build_request("POST", url, json=body), stream=True)
    return StreamingResponse(_pass(response), response.status_code, media_type="text/event-stream")


async def _pass(response: httpx.Response) -> AsyncIterator[bytes]:
    try:
        async for piece in response.aiter_raw():
            yield piece
    finally:
        await response.aclose()
