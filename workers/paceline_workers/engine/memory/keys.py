"""A gateway's keys for beginnings of prompts, and whether the pages behind them are still there. Pure.

A key stands for the last full page of what it covers: a page's digest names all before it as well, and the end of a
prefix is evicted before its beginning. Whatever may have changed a page's state touches its digest; only keys of
touched digests are looked at, when the changes are asked for. At most `limit` keys are known, the longest unused one
goes first. Known hole: with a window, or with a beginning that lies in a slower tier, "there" may still mean to wait.
"""

from collections import OrderedDict
from collections.abc import Callable

KEYS = 4096
CHANGES = 1024


class PrefixKeyIndex:
    """`known` says whether the content of a digest is there."""

    def __init__(self, known: Callable[[bytes], bool], limit: int = KEYS) -> None:
        self._known = known
        self._limit = limit
        self._digest: OrderedDict[str, bytes] = OrderedDict()
        self._keys: dict[bytes, set[str]] = {}
        self._told: set[str] = set()
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
        """A page with this content may have come or gone."""
        for key in self._keys.get(digest, ()):
            self._touched[key] = None

    def changes(self) -> tuple[list[str], list[str]]:
        """Keys that have come to be there, and those that are no more, since the last call; the rest comes next."""
        added, evicted = [], []
        for key in list(self._touched)[:CHANGES]:
            del self._touched[key]
            digest = self._digest.get(key)
            there = digest is not None and self._known(digest)
            if there and key not in self._told:
                added.append(key)
            elif not there and key in self._told:
                evicted.append(key)
        self._told.update(added)
        self._told.difference_update(evicted)
        return added, evicted

    def _forget(self, key: str) -> None:
        digest = self._digest.pop(key, None)
        if digest is None:
            return
        self._touched[key] = None
        self._keys[digest].discard(key)
        if not self._keys[digest]:
            del self._keys[digest]
