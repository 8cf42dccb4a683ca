"""Streams of three routes that lose their worker after any byte, within reasoning and calls too.

The worker's bytes are its own, the gateway's reading of them is the gateway's own; what lies between is cut.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.worker.harness import demo_with, events, running
from tests.worker.scripted_engine import Script
from tests.worker.test_reasoning_routes import TEMPLATE
from tests.worker.test_tool_routes import CALL

from paceline_core.wire import encode
from paceline_gateway.request.sse_scanner import SseScanner, StreamJournal
from paceline_gateway.request.types import TokenUsage
from paceline_workers.server.text.tokenizer import Tokenizer

CHAT = "/v1/chat/completions"
REPLY = f"<think>Look 🔍.</think>Let me see.\n{CALL}"
BODIES: dict[str, dict[str, Any]] = {
    "/v1/responses": {
        "input": "hello",
        "tools": [{"type": "function", "name": "get_weather", "parameters": {"type": "object"}}],
    },
    "/v1/messages": {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 900,
        "tools": [{"name": "get_weather", "input_schema": {"type": "object"}}],
    },
    CHAT: {
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 900,
        "tools": [{"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object"}}}],
        "return_token_ids": True,
        "logprobs": True,
    },
}


def cut(data: bytes, end: int) -> tuple[bytes, SseScanner, StreamJournal]:
    """What the client has, and the gateway knows, of the first `end` bytes."""
    told = StreamJournal(1 << 20)
    scan = SseScanner(TokenUsage(), told)
    return scan.feed(data[:end]), scan, told


def known(have: bytes, _scan: SseScanner, told: StreamJournal) -> tuple[int, str]:
    """What tells one cut from another."""
    resume = told.resume()
    return len(have), resume.model_dump_json() if resume else ""


def held(data: bytes) -> list[Any]:
    """What a client holds at the end: the texts of its deltas in order, the kinds of the other events, and the last."""
    if b"chat.completion.chunk" in data:
        return held_in_chat(data)
    found: list[Any] = [""]
    for event in events(data):
        if event == "[DONE]":
            continue
        delta = event.get("delta")
        text = delta if isinstance(delta, str) else None
        if isinstance(delta, dict) and event["type"] == "content_block_delta":
            text = next(value for name, value in delta.items() if name != "type")
        if text is None:
            found += [{**event, "sequence_number": 0}, ""]
        else:
            found[-1] += text
    return found


def held_in_chat(data: bytes) -> list[Any]:
    """The same of a chat: its roles, texts, arguments, finish reasons, token ids and scored tokens, put together."""
    choices = [event["choices"][0] for event in events(data) if event != "[DONE]"]
    deltas = [choice["delta"] for choice in choices]
    calls = [call for delta in deltas for call in delta.get("tool_calls", ())]
    return [
        [delta["role"] for delta in deltas if delta.get("role")],
        "".join(delta.get("reasoning_content") or "" for delta in deltas),
        "".join(delta.get("content") or "" for delta in deltas),
        "".join(call["function"].get("arguments") or "" for call in calls),
        [choice["finish_reason"] for choice in choices if choice["finish_reason"]],
        [token for choice in choices for token in choice["token_ids"]],
        [scored["token"] for choice in choices for scored in (choice["logprobs"] or {}).get("content", ())],
    ]


@pytest.mark.parametrize("path", BODIES)
async def test_a_client_holds_the_same_wherever_the_stream_was_cut(
    path: str, folder: Path, tokenizer: Tokenizer
) -> None:
    reply = tokenizer.encode_now(REPLY, special=False)
    body = {"model": "chat", "stream": True, **BODIES[path]}
    script = Script(reply=reply, pause_s=0.0005, logprobs=path == CHAT)
    async with running(script, folder=folder, model=demo_with(TEMPLATE, folder)) as rig:
        whole = (await rig.http.post(path, json=body, headers=rig.gateway_headers)).content
        passed = {known(*cut(whole, end)): end for end in range(len(whole) + 1)}
        tried, last = 0, held(cut(whole, len(whole))[0])
        for end in passed.values():
            have, scan, told = cut(whole, end)
            if not scan.began or scan.done:
                continue
            resume = told.resume()
            assert resume is not None
            rest = encode(resume)
            headers = {**rig.gateway_headers, "x-paceline-resume": str(len(rest))}
            more = (await rig.http.post(path, content=json.dumps(body).encode() + rest, headers=headers)).content
            both = have + SseScanner(TokenUsage(), resumed=True).feed(more)
            assert held(both) == last, have
            numbers = [event["sequence_number"] for event in events(both) if "sequence_number" in event]
            assert numbers == sorted(set(numbers))
            tried += 1
    assert tried > 2
