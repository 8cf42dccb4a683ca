"""What single tokens attend to, gathered once and kept from one step to the next.

Where a step's single tokens are those of the layer's last step one token on (`Singles.follows`), what was gathered then
lacks that token alone. Pages that a request holds are written by its own tokens and by copies, so a copy into a page
lets go of everything; a preemption, a fork, a window that moves on or a request that comes or goes changes who attends
to what, and that group is gathered anew. The rows kept equal those gathered anew bit by bit.
Known hole: one request that comes or goes makes its whole group be gathered anew.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from paceline_workers.engine.model.batch import Singles

ROOM = 256 << 20
"""Bytes, at most, of what all layers keep together; groups beyond are gathered in every step."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """Keys and values [rows * kv heads, places, head_dim] in float32, of all tokens that `singles` may see."""

    singles: Singles
    keys: Tensor
    values: Tensor

    def grown(self, singles: Singles, keys: Tensor, values: Tensor) -> "Gathered":
        """The same memory with one more token a row [rows * kv heads, head_dim]."""
        for kept, fresh in ((self.keys, keys), (self.values, values)):
            kept.flatten(0, 1).index_copy_(0, singles.places, fresh)
        return Gathered(singles, self.keys, self.values)


class GatherCache:
    """What one layer gathered in its last step, as far as it has room."""

    def __init__(self, room: int) -> None:
        self._room = room
        self._last: list[Gathered] = []

    def before(self, singles: Singles) -> Gathered | None:
        """What these continue, if anything."""
        return next((gathered for gathered in self._last if singles.follows(gathered.singles)), None)

    def keep(self, step: Sequence[Gathered]) -> None:
        """All of a step's, and nothing of those before it."""
        self._last, left = [], self._room
        for gathered in step:
            if gathered.keys.nbytes + gathered.values.nbytes <= left:
                left -= gathered.keys.nbytes + gathered.values.nbytes
                self._last.append(gathered)

    def forget(self) -> None:
        """Pages were written by others."""
        self._last = []
