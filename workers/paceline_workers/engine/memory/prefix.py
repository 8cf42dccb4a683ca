"""Names for the content of a page: a chained blake2b-128 digest over the page's tokens and all that came before.

Equal digest means equal tokens from position 0 under the same salt (tenant, adapter), so two requests may share the
page. 128 bits leave collisions, malicious ones too, out of reach; a shorter or unkeyed sum would leak across tenants.
"""

import struct
from collections.abc import Sequence
from hashlib import blake2b
from itertools import takewhile

SIZE = 16
"""Bytes of a digest."""


def root(salt: str) -> bytes:
    """The parent of a first page."""
    return blake2b(salt.encode(), digest_size=SIZE, person=b"paceline-prefix").digest()


def chain(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of one full page behind `parent`."""
    return blake2b(parent + struct.pack(f"<{len(tokens)}i", *tokens), digest_size=SIZE).digest()


def extend(digests: list[bytes], salt: str, tokens: Sequence[int], page_tokens: int, unsalted: int = 0) -> None:
    """Append the digests of all full pages of `tokens` that are still missing; each page is hashed once.

    The salt parts all pages but those that lie in the first `unsalted` tokens.
    """
    shared = unsalted // page_tokens
    for start in range(len(digests) * page_tokens, len(tokens) - page_tokens + 1, page_tokens):
        parent = digests[-1] if digests else root("" if shared else salt)
        if shared and salt and len(digests) == shared:
            parent += root(salt)
        digests.append(chain(parent, tokens[start : start + page_tokens]))


def common(texts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """What all begin with."""
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*texts, strict=False))
    return tuple(tokens[0] for tokens in alike)
