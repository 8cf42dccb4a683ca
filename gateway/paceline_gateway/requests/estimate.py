"""How many tokens a prompt will be, without a tokenizer: bytes per token, learned from what workers count.

An average with a short memory, weighted by size, so that a thousand greetings do not outweigh one long document.
"""

START = 4.0
MEMORY_TOKENS = 200_000.0


class TokenRatio:
    """Bytes per prompt token of one service; starts at 4 until the first answer."""

    def __init__(self) -> None:
        self._bytes = 0.0
        self._tokens = 0.0

    @property
    def bytes_per_token(self) -> float:
        """What was learned so far."""
        return self._bytes / self._tokens if self._tokens > 0 else START

    def tokens(self, size: int) -> int:
        """Estimated prompt tokens of a body of `size` bytes; at least one."""
        return max(1, round(size / self.bytes_per_token))

    def learn(self, size: int, tokens: int) -> None:
        """A body of `size` bytes turned out to have this many prompt tokens."""
        if size <= 0 or tokens <= 0:
            return
        self._bytes += size
        self._tokens += tokens
        if self._tokens > MEMORY_TOKENS:
            fade = MEMORY_TOKENS / self._tokens
            self._bytes *= fade
            self._tokens *= fade
