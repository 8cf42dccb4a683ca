"""Prompts of about a wanted length in tokens, no two alike: random common words, so that no prefix is shared.

The server's `usage` is the truth. One probe answer tells how many tokens a word takes and how many the chat template
adds; from then on lengths are right to about a percent, and the report shows what the server counted.
"""

from dataclasses import dataclass
from random import Random

from paceline_core.errors import InvalidInput

PROBE_WORDS = 400
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


def text(words: int, random: Random) -> str:
    """So many random words, as one line."""
    return " ".join(random.choices(WORDS, k=words))


def calibrate(short: int, long: int) -> Calibration:
    """From the token counts of a one-word and a `1 + PROBE_WORDS`-word prompt. Raises InvalidInput."""
    per_word = (long - short) / PROBE_WORDS
    if per_word <= 0:
        raise InvalidInput("usage", f"the server counted {short} tokens for 1 word and {long} for {1 + PROBE_WORDS}")
    return Calibration(per_word, max(short - per_word, 0.0))
