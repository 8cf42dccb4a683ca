"""A client's transport that keeps what is written to it, and whether it is read."""

from collections.abc import Callable
from typing import Any


class _Socket:
    def setsockopt(self, level: int, name: int, value: int) -> None:
        pass


class Transport:
    """`lost` is called as asyncio would call it, at an abort."""

    def __init__(self, address: str = "127.0.0.1") -> None:
        self.written = b""
        self.reading = True
        self.aborted = self.closed = False
        self.lost: Callable[[Exception | None], None] | None = None
        self._address = address

    def get_extra_info(self, name: str) -> Any:
        return (self._address, 1) if name == "peername" else _Socket()

    def set_write_buffer_limits(self, high: int) -> None:
        pass

    def write(self, data: bytes) -> None:
        self.written += data

    def write_eof(self) -> None:
        pass

    def is_closing(self) -> bool:
        return self.aborted or self.closed

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        if not self.aborted:
            self.aborted = True
            if self.lost is not None:
                self.lost(None)
