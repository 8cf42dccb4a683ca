"""What `paceline up` was asked for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paceline_core.config import ORIGIN_PATTERN
from paceline_core.errors import InvalidInput
from paceline_core.units import seconds

DEFAULT_PORT = 8000


@dataclass(frozen=True, slots=True)
class UpOptions:
    """Command-line words, checked. Port 0 takes a free one.

    `duration_s`: how long it stays when all is ready, or waits for the check's answer; None: until it is told to stop.
    """

    files: tuple[Path, ...]
    state: Path
    port: int = DEFAULT_PORT
    duration_s: float | None = None
    check: bool = False
    log_level: str = "INFO"
    cors_origins: tuple[str, ...] = ()


def parse_origins(texts: Sequence[str]) -> tuple[str, ...]:
    """`https://chat.example.com` or `*`; raises InvalidInput naming the option."""
    for text in texts:
        if not re.fullmatch(ORIGIN_PATTERN, text):
            raise InvalidInput("--cors-origin", f"{text!r} is not an origin; write it like http://localhost:3000, or *")
    return tuple(texts)


def parse_duration(text: str | None) -> float | None:
    """`90s` -> 90.0; raises InvalidInput naming the option."""
    if text is None:
        return None
    try:
        return seconds(text)
    except ValueError as error:
        raise InvalidInput("--duration", str(error)) from None
