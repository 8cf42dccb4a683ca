"""Cut a byte stream into frames: 4 bytes of big-endian length, then that many bytes. Pure; the limit bounds memory."""

from paceline_workers.messages import FRAME_LIMIT

_HEAD = 4


class FrameReader:
    """Feed bytes as they come; take whole frames out."""

    def __init__(self, limit: int = FRAME_LIMIT) -> None:
        self._limit = limit
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that `data` completes, in order. Raises ValueError when one is over the limit."""
        self._buffer += data
        frames: list[bytes] = []
        start = 0
        while (end := self._end(start)) is not None:
            frames.append(bytes(self._buffer[start + _HEAD : end]))
            start = end
        del self._buffer[:start]
        return frames

    def _end(self, start: int) -> int | None:
        if len(self._buffer) < start + _HEAD:
            return None
        size = int.from_bytes(self._buffer[start : start + _HEAD], "big")
        if size > self._limit:
            raise ValueError(f"a frame of {size} bytes is over the limit of {self._limit}")
        end = start + _HEAD + size
        return end if end <= len(self._buffer) else None
