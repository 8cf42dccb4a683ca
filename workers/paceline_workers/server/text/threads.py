"""A few threads for work on long texts, with a queue that is bounded in entries and in characters.

Work that waits for a thread is dropped, with its text, when its awaiting task is cancelled; work that a thread has
begun runs to its end, and counts until then.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from paceline_core.errors import Code, RequestError

THREADS = 2
WAITING = 64
CHARACTERS = 1 << 24
"""The most characters of all texts that wait or are in work: two bodies of the largest size."""
RETRY_AFTER_S = 1.0
R = TypeVar("R")


class TextThreads:
    """`waiting` pieces of work, with `characters` in total, wait or run."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(THREADS, "tokenize")
        self._lock = threading.Lock()
        self.waiting = self.characters = 0

    async def run(self, work: Callable[[], R], characters: int) -> R:
        """The result of `work` on `characters` characters. Raises RequestError `queue_full`."""
        if self.waiting >= WAITING or self.characters + characters > max(CHARACTERS, characters):
            words = f"{self.waiting} long texts wait for the tokenizer."
            raise RequestError(Code.QUEUE_FULL, words, retry_after=RETRY_AFTER_S)
        self._add(1, characters)
        held = [work]

        def begin() -> R:
            return held.pop()()

        def done(_: object) -> None:
            held.clear()
            self._add(-1, -characters)

        future = self._pool.submit(begin)
        future.add_done_callback(done)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """End the threads."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _add(self, entries: int, characters: int) -> None:
        with self._lock:
            self.waiting += entries
            self.characters += characters
