"""One reader's part of a watch: a bounded queue of events. A reader that falls behind is dropped, and lists again.

That is safe because watches are level-triggered: the reader replaces its state when it returns.
"""

import asyncio
from collections import deque
from typing import Any

Line = dict[str, Any]
LIMIT = 256


class WatchFeed:
    """Lines in order, until it is closed or a push finds it full."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._lines: deque[Line] = deque()
        self._limit = limit
        self._news = asyncio.Event()
        self.closed = False

    def push(self, line: Line) -> None:
        """Add a line; a full feed drops everything and closes."""
        if len(self._lines) >= self._limit:
            self._lines.clear()
            self.close()
        if not self.closed:
            self._lines.append(line)
            self._news.set()

    def close(self) -> None:
        self.closed = True
        self._news.set()

    async def next(self, limit_s: float) -> Line | None:
        """The next line; None if none came within the limit or the feed is closed and empty."""
        if not self._lines and not self.closed:
            self._news.clear()
            try:
                async with asyncio.timeout(limit_s):
                    await self._news.wait()
            except TimeoutError:
                return None
        return self._lines.popleft() if self._lines else None


class Topics:
    """Readers by topic; `closed` counts those that were too slow."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._feeds: dict[str, set[WatchFeed]] = {}
        self._limit = limit
        self.closed = 0

    def open(self, topic: str) -> WatchFeed:
        feed = WatchFeed(self._limit)
        self._feeds.setdefault(topic, set()).add(feed)
        return feed

    def leave(self, topic: str, feed: WatchFeed) -> None:
        self._feeds.get(topic, set()).discard(feed)

    def publish(self, topic: str, line: Line) -> None:
        """Give a line to every reader of a topic, and drop the readers that are closed."""
        feeds = self._feeds.get(topic, set())
        for feed in feeds:
            feed.push(line)
        slow = {feed for feed in feeds if feed.closed}
        self.closed += len(slow)
        feeds -= slow

    def close(self) -> None:
        for feeds in self._feeds.values():
            for feed in feeds:
                feed.close()
        self._feeds.clear()
