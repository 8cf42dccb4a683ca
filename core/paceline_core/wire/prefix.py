"""How a gateway names the beginnings of a prompt that it has not tokenized, so that a worker can tell which it has.

A key is 16 hex digits, chained: it stands for the first BLOCK bytes of the prompt as the gateway writes it down, the
next one for the first two blocks, and so on, under the tenant's salt. The header PREFIX carries how many bytes there
are in all and the keys in order: `5300;5f0c...,8a1e...`. Only the gateway knows how keys are made. A worker takes a
key to cover the same share of the prompt's tokens as of its bytes; that is near enough to say which pages it is about.
"""

import re
from dataclasses import dataclass

PREFIX = "x-paceline-prefix"
BLOCK = 1024
KEYS_LIMIT = 128
_HEADER = re.compile(r"(\d{1,9});([0-9a-f]{16}(?:,[0-9a-f]{16})*)")


@dataclass(frozen=True, slots=True)
class PrefixKeys:
    """Keys of the first blocks of a prompt of `size` bytes, the shortest beginning first; at most KEYS_LIMIT."""

    size: int
    keys: tuple[str, ...]

    @classmethod
    def read(cls, text: str) -> "PrefixKeys | None":
        """From a header; None if it is none, or names more than there can be: it is a hint, and nothing rests on it."""
        found = _HEADER.fullmatch(text)
        if found is None:
            return None
        size, keys = int(found[1]), tuple(found[2].split(","))
        return cls(size, keys) if len(keys) <= min(size // BLOCK, KEYS_LIMIT) else None

    def header(self) -> str:
        """What `read` reads."""
        return f"{self.size};{','.join(self.keys)}"

    def tokens(self, count: int) -> list[tuple[str, int]]:
        """Each key, and how many of a prompt's `count` tokens it covers."""
        return [(key, count * BLOCK * number // self.size) for number, key in enumerate(self.keys, 1)]
