"""What the backend must do to the bytes of pages before it computes a step."""

from dataclasses import dataclass
from enum import StrEnum


class CopyKind(StrEnum):
    """From where to where."""

    DEVICE = "device"
    OUT = "out"
    IN = "in"
    SAVE = "save"
    LOAD = "load"
    ERASE = "erase"


@dataclass(frozen=True, slots=True)
class Copy:
    """One page moved whole: page to page (DEVICE), page to host slot (OUT), host slot to page (IN).

    With files: host slot to file (SAVE), what was read of a file to host slot (LOAD), a file removed (ERASE, of
    `source`); a file is named by its digest as a number. Order matters: a page or slot may be read by one copy and
    overwritten by a later one of the same step.
    """

    kind: CopyKind
    source: int
    target: int
