"""`warmPrefixes`: texts that the engine prefills before the worker is ready, so that the first requests hit the cache.

A text is warmed both as the start of a plain prompt and as the system message of a chat; only tokens that stay the same
whatever follows count. The manifest makes the text public, so its pages belong to no tenant (`Submit.unsalted`).
Afterwards the prefix cache treats it like any other: it evicts the least recently used pages first.

If warming fails or takes longer than LIMIT_S, the worker logs that and becomes ready all the same. A text as long as
the context, with which no prompt can begin, is refused by name.
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
"""Different starts of the text that may follow."""


@dataclass(frozen=True, slots=True)
class WarmPrefixes:
    """The token ids of the configured prefixes."""

    prefixes: tuple[tuple[int, ...], ...] = ()
    limit_s: float = LIMIT_S

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer, template: ChatTemplate | None) -> "WarmPrefixes":
        """The prefixes of these texts."""
        found = (prefix for text in texts for prefix in _prefixes(text, tokenizer, template))
        return cls(tuple(dict.fromkeys(found)))

    def unsalted(self, ids: Sequence[int]) -> int:
        """How many tokens at the start of `ids` are public."""
        return max((len(one) for one in self.prefixes if _begins(ids, one)), default=0)

    async def warm(self, engine: EngineClient) -> None:
        """Prefill them; returns within `limit_s`. Raises InvalidInput for a prefix that can never be prefilled."""
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
        return ""  # this template does not support system messages


def _begins(ids: Sequence[int], prefix: tuple[int, ...]) -> bool:
    """Compares the last token first: most prompts differ there, and need no copy."""
    size = len(prefix)
    return len(ids) >= size and ids[size - 1] == prefix[-1] and tuple(ids[:size]) == prefix
