"""Lines out of chunks, each byte copied once: the body of a watch as it comes from the network."""

from typing import Final

from paceline_core.errors import Unreachable

LINE_LIMIT: Final = 32 << 20


class LineBuffer:
    """`feed` chunks, get whole lines. Invariant: `held` holds at most one begun line of at most `limit` bytes."""

    def __init__(self, limit: int = LINE_LIMIT) -> None:
        self._limit = limit
        self._held: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that this chunk ends, without their ends and without empty ones. Raises Unreachable over limit."""
        *ended, rest = chunk.split(b"\n")
        if ended and self._held:
            self._check(len(ended[0]))
            ended[0] = b"".join((*self._held, ended[0]))
            self._held, self._size = [], 0
        if rest:
            self._check(len(rest))
            self._held.append(rest)
            self._size += len(rest)
        return [line for line in ended if line]

    @property
    def begun(self) -> bool:
        """Whether a line was begun and not ended."""
        return bool(self._held)

    def _check(self, more: int) -> None:
        if self._size + more > self._limit:
            raise Unreachable(f"the API server sent a line of more than {self._limit >> 20} MiB; it is not read")
