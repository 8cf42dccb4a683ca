"""Which beginnings of prompts each worker probably has cached: told by the worker, or hoped for.

A worker's load stream says which keys have come to be cached and which are gone. What was just dispatched is taken to
be cached there for HOPE_S more, until the worker's word replaces it: two prompts with one beginning that come together
must not be computed twice. A worker that is gone, or whose load stream begins anew, has nothing.

Keys are chained and a worker drops the end of a prefix before its beginning, so one known key vouches for all before
it, and a chain is searched by halving. Invariant: at most `limit` bytes in all. Every worker has an equal share of
them; within it the longest unused key goes first, the end of a chain before its beginning.
Known hole: a key that was dropped here for want of room is not told again by its worker.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from math import inf

HOPE_S = 5.0
ENTRY_BYTES = 384
"""What one key costs at most: its text, a time, and its place in an ordered dictionary while that grows."""


class PrefixIndex:
    """`now` is monotonic seconds."""

    def __init__(self, limit: int) -> None:
        self._entries = limit // ENTRY_BYTES
        self._workers: dict[str, OrderedDict[str, float]] = {}  # until when each key may be believed

    def __len__(self) -> int:
        """Keys known, of all workers."""
        return sum(len(keys) for keys in self._workers.values())

    @property
    def bytes(self) -> int:
        """What they may take, by the cost of one."""
        return len(self) * ENTRY_BYTES

    def bytes_of(self, worker: str) -> int:
        """What one worker's keys may take."""
        return len(self._workers.get(worker, ())) * ENTRY_BYTES

    def note(self, worker: str, keys: Sequence[str], now: float) -> None:
        """A prompt with these keys goes to this worker."""
        known, until = self._known(worker), now + HOPE_S
        get, move = known.get, known.move_to_end
        for key in reversed(keys):
            if get(key) != inf:
                known[key] = until
            move(key)
        self._trim(known)

    def reported(self, worker: str, added: Sequence[str], evicted: Iterable[str]) -> None:
        """The worker's own word."""
        known = self._known(worker)
        for key in evicted:
            known.pop(key, None)
        for key in reversed(added):
            known[key] = inf
            known.move_to_end(key)
        self._trim(known)

    def cached(self, worker: str, keys: Sequence[str], now: float) -> int:
        """How many of a prompt's keys the worker probably has."""
        known = self._workers.get(worker)
        if not known or not keys:
            return 0
        if keys[0] not in known and keys[-1] not in known:
            return 0  # most prompts at most workers
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if known.get(keys[middle], -inf) > now:
                low = middle + 1
            else:
                high = middle
        return low

    def gone(self, worker: str) -> None:
        """The worker, or all that it told, is gone."""
        self._workers.pop(worker, None)

    def _known(self, worker: str) -> OrderedDict[str, float]:
        known = self._workers.get(worker)
        if known is None:
            known = self._workers[worker] = OrderedDict()
            for other in self._workers.values():
                self._trim(other)
        return known

    def _trim(self, known: OrderedDict[str, float]) -> None:
        share = self._entries // len(self._workers)
        while len(known) > share:
            known.popitem(last=False)
