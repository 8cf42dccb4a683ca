"""What the command line asks for."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Options:
    """`rounds` of each comparison; `trees`: other checkouts whose gateway takes part."""

    quick: bool
    rounds: int
    only: tuple[str, ...]
    peers: tuple[str, ...]
    trees: tuple[Path, ...] = field(default=())
