"""`paceline up --check`: one streamed chat through the gateway, as any client would send it, and its speed."""

import json
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import httpx

from paceline_core.clock import Clock
from paceline_core.errors import Unreachable

QUESTION = "What is TTFT?"
LIMIT_S = 120.0
MAX_TOKENS = 64


@dataclass(frozen=True, slots=True)
class ChatTarget:
    endpoint: str
    key: str
    model: str

    @property
    def body(self) -> dict[str, Any]:
        """The request body of `curl` and `--check`: greedy, so that every run gets the same sentence."""
        messages = [{"role": "user", "content": QUESTION}]
        return {"model": self.model, "stream": True, "temperature": 0, "messages": messages}

    @property
    def base_url(self) -> str:
        return f"{self.endpoint}/v1"


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A stream: time to first token and total time in seconds, output tokens, the text."""

    ttft_s: float
    total_s: float
    tokens: int
    text: str

    @property
    def tokens_per_s(self) -> float:
        """Decode speed: the tokens after the first over the time after the first."""
        rest = self.total_s - self.ttft_s
        return (self.tokens - 1) / rest if rest > 0 and self.tokens > 1 else 0.0


async def ask(target: ChatTarget, clock: Clock) -> ChatAnswer:
    """Send the question; raises Unreachable with what was wrong in the answer."""
    body = {**target.body, "max_tokens": MAX_TOKENS, "stream_options": {"include_usage": True}}
    headers = {"authorization": f"Bearer {target.key}"}
    try:
        async with httpx.AsyncClient(base_url=target.endpoint, timeout=LIMIT_S, trust_env=False) as http:
            began = clock.monotonic()
            async with http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as response:
                if response.is_error:
                    text = (await response.aread()).decode(errors="replace")
                    raise Unreachable(f"the gateway answered {response.status_code}: {text[:300]}")
                return await _measure(_events(response), began, clock)
    except httpx.HTTPError as error:
        raise Unreachable(f"the gateway broke off: {error!r}") from None


async def _measure(events: AsyncIterator[dict[str, Any]], began: float, clock: Clock) -> ChatAnswer:
    text, first, tokens = "", None, 0
    async for event in events:
        if "error" in event:
            raise Unreachable(f"the stream ended with an error: {event['error'].get('message')}")
        for choice in event.get("choices", ()):
            content = choice.get("delta", {}).get("content") or ""
            first = clock.monotonic() if content and first is None else first
            text += content
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    if first is None:
        raise Unreachable("the stream ended without a token")
    return ChatAnswer(first - began, clock.monotonic() - began, tokens, text)


async def _events(response: httpx.Response) -> AsyncIterator[dict[str, Any]]:
    async for line in response.aiter_lines():
        data = line.removeprefix("data: ")
        if data == "[DONE]":
            return
        if data != line:
            event = None
            with suppress(ValueError):
                event = json.loads(data)
            if not isinstance(event, dict):
                raise Unreachable(f"the stream holds an event that is no JSON object: {data[:100]}")
            yield event
    raise Unreachable("the stream ended without [DONE]")
