"""`warmPrefixes`: texts that the engine prefills before the worker is ready, so that their first reader finds them.

A text is warmed as a plain prompt begins with it and as a chat does whose system message it is; only tokens that are
the same whatever follows count. Whoever wrote the manifest made the text known to all, so its pages belong to no tenant
(`Submit.unsalted`). It then lives in the prefix cache as all else does: least recently used pages go first.

Failing to warm, or not being done within LIMIT_S, is logged and keeps no worker from its clients; a text that no prompt
can begin with, since it is as long as the context, is refused by name.
"""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline_core.errors import InvalidInput, PacelineError, RequestError
from paceline_core.telemetry import get_logger
from paceline_workers.engine.kv_cache import prefix_keys
from paceline_workers.messages import Sampling, Submit
from paceline_workers.server.engine.client import EngineClient
from paceline_workers.server.text.chat import ChatTemplate
from paceline_workers.server.text.tokenizer import Tokenizer

_log = get_logger(__name__)
LIMIT_S = 60.0
FOLLOWING = ("A", "\n1", " b", "The end")
"""Different beginnings of what may follow."""


@dataclass(frozen=True, slots=True)
class WarmPrefixes:
    """Token ids with which prompts begin, as configured."""

    prefixes: tuple[tuple[int, ...], ...] = ()
    limit_s: float = LIMIT_S

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer, template: ChatTemplate | None) -> "WarmPrefixes":
        """The prefixes of these texts."""
        found = (prefix for text in texts for prefix in _prefixes(text, tokenizer, template))
        return cls(tuple(dict.fromkeys(found)))

    def unsalted(self, ids: Sequence[int]) -> int:
        """How many tokens `ids` begins with that are nobody's secret."""
        return max((len(one) for one in self.prefixes if _begins(ids, one)), default=0)

    async def warm(self, engine: EngineClient) -> None:
        """Have them prefilled; returns in `limit_s` at the latest. Raises InvalidInput for one that never can be."""
        longest = max(map(len, self.prefixes), default=0)
        if engine.started and longest >= (context := engine.started.max_model_len):
            problem = f"one has {longest} tokens, and the context {context}; shorten it, or leave it out"
            raise InvalidInput("engine.warm_prefixes", problem)
        submits = [
            Submit(f"warm-{place}", list(prefix), 1, Sampling(temperature=0.0), ignore_eos=True)
            for place, prefix in enumerate(self.prefixes)
        ]
        try:
            async with asyncio.timeout(self.limit_s):
                with engine.begin(*submits) as stream:
                    while stream.running:
                        for frame in await stream.read():
                            if frame.error:
                                _log.error("a prefix is not warm", extra={"prefix": frame.id, "reason": frame.error})
        except (TimeoutError, PacelineError) as error:
            reason = f"not done within {self.limit_s:.0f} s" if isinstance(error, TimeoutError) else str(error)
            _log.error("prefixes are not warm", extra={"reason": reason})


def _prefixes(text: str, tokenizer: Tokenizer, template: ChatTemplate | None) -> Iterator[tuple[int, ...]]:
    plain = [tokenizer.encode_now(text + more, special=True) for more in FOLLOWING]
    chats = [_chat(text, more, template) for more in FOLLOWING]
    in_chats = [tokenizer.encode_now(chat, special=False) for chat in chats if chat]
    for variants in (plain, in_chats):
        if common := prefix_keys.common(variants):
            yield common


def _chat(text: str, more: str, template: ChatTemplate | None) -> str:
    if template is None:
        return ""
    try:
        return template.render([{"role": "system", "content": text}, {"role": "user", "content": more}])
    except RequestError:
        return ""  # this template knows no system message


def _begins(ids: Sequence[int], prefix: tuple[int, ...]) -> bool:
    """Its last token first: most prompts differ there, and need no copy."""
    size = len(prefix)
    return len(ids) >= size and ids[size - 1] == prefix[-1] and tuple(ids[:size]) == prefix
