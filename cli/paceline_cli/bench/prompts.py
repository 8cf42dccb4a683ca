"""Prompts of about a wanted length in tokens, no two of which begin alike, so that no prefix cache helps.

The server's `usage` is the truth. Two probe answers tell how many tokens a word takes and how many the chat template
adds; from then on lengths are right to about a percent, and the report shows what the server counted. Only the first
words of a prompt are drawn anew: drawing all of 8k would take the core that an emulated worker needs just then.
"""

from dataclasses import dataclass
from random import Random

from paceline_core.errors import InvalidInput

PROBE_WORDS = 400
HEAD_WORDS = 16
WORDS = (
    "request", "answer", "token", "model", "worker", "gateway", "queue", "batch", "step", "replica", "cache", "page",
    "prompt", "stream", "latency", "prefill", "decode", "weights", "class", "tenant", "quota", "service", "promise",
    "time", "memory", "number", "share", "rate", "load", "pool", "first", "last", "long", "short", "small", "large",
    "each", "every", "other", "before", "after", "until", "while", "never", "more", "again", "together", "between",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Calibration:
    """Tokens that a prompt costs: `overhead` for the template, `per_word` for every word."""

    per_word: float
    overhead: float

    def words(self, tokens: int) -> int:
        """Words that make a prompt of about `tokens` tokens, template included; at least one."""
        return max(round((tokens - self.overhead) / self.per_word), 1)


class Writer:
    """Writes prompts of common words, the same ones for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # noqa: S311 - reproducible prompts, not secrets
        self._tails: dict[int, str] = {}

    def text(self, words: int) -> str:
        """So many words as one line; its first HEAD_WORDS are its own."""
        head = " ".join(self._random.choices(WORDS, k=min(words, HEAD_WORDS)))
        return f"{head} {self._tail(words - HEAD_WORDS)}" if words > HEAD_WORDS else head

    def _tail(self, words: int) -> str:
        if words not in self._tails:
            self._tails[words] = " ".join(self._random.choices(WORDS, k=words))
        return self._tails[words]


def calibrate(short: int, long: int) -> Calibration:
    """From the token counts of a one-word and a `1 + PROBE_WORDS`-word prompt. Raises InvalidInput."""
    per_word = (long - short) / PROBE_WORDS
    if per_word <= 0:
        raise InvalidInput("usage", f"the server counted {short} tokens for 1 word and {long} for {1 + PROBE_WORDS}")
    return Calibration(per_word, max(short - per_word, 0.0))
