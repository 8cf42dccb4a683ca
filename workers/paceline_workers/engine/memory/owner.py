"""Requests as KV memory sees them: a protocol, so that this package imports no scheduler."""

from typing import Protocol


class PageHolder(Protocol):
    """What holds pages: tokens, how many of them are computed, and the block table, which lacks `dropped` pages.

    `forked`: somebody may refer to the page that it writes next. `room`: up to so many tokens it need not `grow`.
    """

    tokens: list[int]
    salt: str
    unsalted: int
    computed: int
    pages: list[int]
    dropped: int
    forked: bool
    room: int
    digests: list[bytes]

    @property
    def scores(self) -> bool:
        """All of its tokens are computed: no cached prefix is used, and the pages it fills are published as ever."""
        ...
