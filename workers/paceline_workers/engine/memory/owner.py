"""What KV memory needs to know of a request, so that neither the scheduler nor a test must be imported for it."""

from typing import Protocol


class Owner(Protocol):
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
        """It computes all of its tokens: nothing that is known is found for it, what it computes is named as ever."""
        ...
