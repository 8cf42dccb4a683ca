"""Prefix keys of a prompt, computed without a tokenizer, and the index of what each worker probably has cached.

Keys are chained over the prompt's canonical bytes (`wire.prefix`). The canonical bytes of a longer conversation begin
with those of the shorter one, whatever the order of its fields: what a chat template writes first comes first (the
tools and other settings), then the messages, with sorted keys. A key is the xxh3 of the bytes after the previous key,
seeded with that key. The first seed is the tenant and the request's `cache_salt`, because workers share prefixes only
inside these. It separates and hides nothing: keys go only to our own workers, and no client ever sees one.
Known hole: the same text as a string and as a list of parts has different keys.

A worker's load stream reports which keys were cached and evicted. A prompt that was just dispatched is assumed to be
cached there for ASSUMED_S, until a report replaces the assumption: two prompts with the same prefix that arrive
together must not be computed twice. A worker that is gone, or whose load stream restarts, has nothing.

Keys are chained, and a worker evicts the end of a prefix before its beginning. So one known key implies all earlier
ones, and a binary search finds the known part of a chain. Invariant: at most `limit` bytes in all. Every worker has an
equal share of them; within it the least recently used key goes first, the end of a chain before its beginning.
Known hole: a worker does not report a key again that was dropped here for want of room.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from math import inf
from struct import pack
from typing import Any

import orjson
from xxhash import xxh3_64_intdigest

from paceline_core.wire import PrefixKeys
from paceline_core.wire.message import ATTRIBUTION, BLOCK, reaches

_RENDERED = ("chat_template", "chat_template_kwargs", "documents", "instructions", "system")
"""Fields that change a whole prompt, wherever the template writes them."""


def prefix_keys(body: Mapping[str, Any], tenant: str) -> PrefixKeys | None:
    """The keys of a parsed body's prompt; None if it is shorter than a block, or not a single prompt."""
    prompt = canonical(body)
    if prompt is None or len(prompt) < BLOCK:
        return None
    key, salt = xxh3_64_intdigest(tenant.encode()), body.get("cache_salt")
    if isinstance(salt, str):
        key = xxh3_64_intdigest(salt.encode(errors="surrogatepass"), key)
    ends = reaches(len(prompt))
    chain = [key := xxh3_64_intdigest(prompt[start:end], key) for start, end in pairwise((0, *ends))]
    keys = pack(f">{len(chain)}Q", *chain).hex(",", 8).split(",")
    return PrefixKeys(len(prompt), tuple(keys))


def canonical(body: Mapping[str, Any]) -> memoryview | None:
    """The prompt's canonical bytes; None if there is no prompt, several, or only the rest of one."""
    if body.get("truncate_prompt_tokens") is not None:
        return None
    given, prompt = body.get("input"), body.get("prompt")  # items of a response, or texts and ids of other routes
    items = given if isinstance(given, list) and given and isinstance(given[0], dict) else None
    messages = body.get("messages", items)
    try:
        if isinstance(messages, list):
            offered = None if body.get("tool_choice") == "none" else body.get("tools")
            others = {name: value for name in _RENDERED if (value := _rendered(body.get(name)))}
            return _opened(messages, b"".join(_written(value) for value in (offered, others) if value))
        if isinstance(prompt, list) and len(prompt) == 1:
            prompt = prompt[0]
        if isinstance(prompt, str):
            return memoryview(prompt.encode())
        if isinstance(prompt, list) and set(map(type, prompt)) <= {int}:
            return _opened(prompt)
    except (orjson.JSONEncodeError, UnicodeEncodeError):
        pass  # nested too deep to write; the worker decides whether such a request is valid
    return None


def _rendered(value: Any) -> Any:
    """Without the block in which a client describes itself."""
    if not isinstance(value, list):
        return value
    return [one for one in value if not (type(one) is dict and str(one.get("text")).startswith(ATTRIBUTION))]


def _opened(items: list[Any], before: bytes = b"") -> memoryview:
    """A list without its closing bracket: more items only append to it."""
    return memoryview(before + _written(items))[:-1]


def _written(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)


ASSUMED_S = 5.0
ENTRY_BYTES = 384
"""The most that one key costs: its text, a time, and its place in an ordered dictionary that may be growing."""


class PrefixIndex:
    """`now` is monotonic seconds."""

    def __init__(self, limit: int) -> None:
        self._entries = limit // ENTRY_BYTES
        self._workers: dict[str, OrderedDict[str, float]] = {}  # each key with the time at which it expires

    def __len__(self) -> int:
        """The number of known keys of all workers."""
        return sum(len(keys) for keys in self._workers.values())

    @property
    def bytes(self) -> int:
        """The most bytes that all keys may take, by the cost of one."""
        return len(self) * ENTRY_BYTES

    def bytes_of(self, worker: str) -> int:
        """The most bytes that one worker's keys may take."""
        return len(self._workers.get(worker, ())) * ENTRY_BYTES

    def note(self, worker: str, keys: Sequence[str], now: float) -> None:
        """A prompt with these keys goes to this worker."""
        known, until = self._known(worker), now + ASSUMED_S
        get, move = known.get, known.move_to_end
        for key in reversed(keys):
            if get(key) != inf:
                known[key] = until
            move(key)
        self._trim(known)

    def reported(self, worker: str, added: Sequence[str], evicted: Iterable[str]) -> None:
        """The worker reported added and evicted keys."""
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
            return 0  # the usual case
        low, high = 0, len(keys)
        while low < high:
            middle = (low + high) // 2
            if known.get(keys[middle], -inf) > now:
                low = middle + 1
            else:
                high = middle
        return low

    def gone(self, worker: str) -> None:
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
