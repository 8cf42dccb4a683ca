"""Prompts: what every request of a load begins with, and what is its own. Sizes are those of the whole prompt."""

import json
import random

SHARED = 2048
_WORDS = ("the pace of a queue is what its slowest reader makes of it", "nobody waits longer than two seconds")


def bodies(count: int, size: int = SHARED + 256, *, stream: bool = True, seed: int = 0) -> list[bytes]:
    """So many requests that share their first two KiB, as a service's users share its system prompt."""
    chance = random.Random(seed)
    return [_body(_text(random.Random("shared"), SHARED), _text(chance, size - SHARED), stream) for _ in range(count)]


def _text(chance: random.Random, size: int) -> str:
    words = " ".join(chance.choices(_WORDS, k=size // 30 + 1))
    return words[:size]


def _body(system: str, user: str, stream: bool) -> bytes:
    messages = [{"role": "system", "content": system}, {"role": "user", "content": user}]
    asked = {"model": "chat", "messages": messages, "stream": stream}
    return json.dumps(asked | ({"stream_options": {"include_usage": True}} if stream else {})).encode()
