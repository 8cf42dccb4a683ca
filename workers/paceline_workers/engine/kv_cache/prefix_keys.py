"""Digests of pages, and a gateway's prefix keys: whether the pages behind each key are still available. Pure.

A digest is a chained blake2b-128 hash of a page's tokens and all tokens before. Equal digests mean equal tokens from
position 0 under the same salt (tenant, adapter), so requests may share the page. 128 bits make collisions infeasible,
malicious ones too; a shorter or unkeyed sum would leak across tenants.

A key refers to the last full page that it covers: a page's digest covers all pages before it as well, and the end of a
prefix is evicted before its beginning. Whatever may change a page's state touches its digest; `changes` looks only at
keys of touched digests. At most `limit` keys are known, the longest unused one is dropped first. Known hole: with a
window, or with a beginning in a slower tier, an available key may still mean a wait.
"""

import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from itertools import takewhile

KEYS = 4096
CHANGES = 1024


class PrefixKeyIndex:
    """`known` says whether the content of a digest is available."""

    def __init__(self, known: Callable[[bytes], bool], limit: int = KEYS) -> None:
        self._known = known
        self._limit = limit
        self._digest: OrderedDict[str, bytes] = OrderedDict()
        self._keys: dict[bytes, set[str]] = {}
        self._reported: set[str] = set()
        self._touched: dict[str, None] = {}

    def note(self, key: str, digest: bytes) -> None:
        """`key` ends with this page; it is in use."""
        if self._digest.get(key) != digest:
            self._forget(key)
            self._keys.setdefault(digest, set()).add(key)
            self._touched[key] = None
        self._digest[key] = digest
        self._digest.move_to_end(key)
        if len(self._digest) > self._limit:
            self._forget(next(iter(self._digest)))

    def touch(self, digest: bytes) -> None:
        """A page with this content may have become available or unavailable."""
        for key in self._keys.get(digest, ()):
            self._touched[key] = None

    def changes(self) -> tuple[list[str], list[str]]:
        """Keys that became available and keys that became unavailable since the last call; the rest comes next time."""
        added, evicted = [], []
        for key in list(self._touched)[:CHANGES]:
            del self._touched[key]
            digest = self._digest.get(key)
            there = digest is not None and self._known(digest)
            if there and key not in self._reported:
                added.append(key)
            elif not there and key in self._reported:
                evicted.append(key)
        self._reported.update(added)
        self._reported.difference_update(evicted)
        return added, evicted

    def _forget(self, key: str) -> None:
        digest = self._digest.pop(key, None)
        if digest is None:
            return
        self._touched[key] = None
        self._keys[digest].discard(key)
        if not self._keys[digest]:
            del self._keys[digest]


SIZE = 16
"""Bytes of a digest."""
TOKEN_BYTES = 4


def root(salt: str) -> bytes:
    """The parent digest of a first page."""
    return blake2b(salt.encode(), digest_size=SIZE, person=b"paceline-prefix").digest()


def pack(tokens: Sequence[int]) -> bytes:
    """The hashed bytes of tokens, TOKEN_BYTES each."""
    return struct.pack(f"<{len(tokens)}i", *tokens)


def chain(parent: bytes, page: bytes) -> bytes:
    """The digest of a full page, packed, that follows `parent`."""
    return blake2b(parent + page, digest_size=SIZE).digest()


def extend(digests: list[bytes], salt: str, tokens: Sequence[int], page_tokens: int, unsalted: int = 0) -> None:
    """Append the missing digests of full pages of `tokens`; each page is hashed once.

    The salt separates all pages except those within the first `unsalted` tokens.
    """
    known, full = len(digests), len(tokens) // page_tokens
    if known >= full:
        return
    shared, size = unsalted // page_tokens, page_tokens * TOKEN_BYTES
    packed = pack(tokens[known * page_tokens : full * page_tokens])
    for start in range(0, len(packed), size):
        parent = digests[-1] if digests else root("" if shared else salt)
        if shared and salt and len(digests) == shared:
            parent += root(salt)
        digests.append(chain(parent, packed[start : start + size]))


def common(texts: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The longest common prefix of all texts."""
    alike = takewhile(lambda tokens: len(set(tokens)) == 1, zip(*texts, strict=False))
    return tuple(tokens[0] for tokens in alike)
