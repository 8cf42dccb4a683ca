"""What of a stream its client has, kept raw: comment lines as they came, read only when it must go on elsewhere.

Invariant: the lines are exactly the comments whose events were passed on, in order. Above `limit` bytes, and after
anything that contradicts itself, nothing is kept and the stream cannot be resumed.
"""

import re

from paceline_core.choices import CHOICES_PER_REQUEST
from paceline_core.registry.enums import CutReason
from paceline_core.wire import Resume, ResumedChoice

BEGINNING = 512
_IDENTITY = re.compile(rb'"id":\s*"([^"\\]{1,128})"')
_CREATED = re.compile(rb'"created(?:_at)?":\s*(\d{1,15})\b')


class StreamJournal:
    """One stream, over all workers that had a part in it."""

    __slots__ = ("_beginning", "_limit", "_lines", "cut")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines = bytearray()
        self._beginning = b""
        self.cut: CutReason | None = None
        """Why the stream cannot be resumed, if that is known already."""

    def begin(self, first: bytes) -> None:
        """The first events, which name the stream."""
        if not self._beginning:
            self._beginning = first[:BEGINNING]

    def add(self, line: bytes) -> None:
        """A comment whose events are passed on."""
        if self.cut is None:
            self._lines += line
            if len(self._lines) > self._limit:
                self.give_up(CutReason.LONG)

    def give_up(self, why: CutReason) -> None:
        """Keep nothing more."""
        self.cut = why
        self._lines = bytearray()

    def resume(self) -> Resume | None:
        """The stream so far; None where it cannot be resumed, and `cut` says why."""
        if self.cut is None:
            identity, created = _IDENTITY.search(self._beginning), _CREATED.search(self._beginning)
            choices = _choices(self._lines.splitlines())
            if identity and choices and (created or b"message_start" in self._beginning):
                return Resume(id=identity[1].decode(), created=int(created[1]) if created else 0, choices=choices)
            self.give_up(CutReason.UNKNOWN)
        return None


def piece(line: bytes) -> tuple[int, int, int, int] | None:
    """Choice, position, number of ids and of events of a comment `: p` or `: c`; None if it is malformed."""
    fields = line[2:].split()
    if fields[:1] == [b"p"]:
        fields.insert(1, b"0")
    fields += [b"1"] * (len(fields) == 4)
    if len(fields) < 5 or not (fields[1].isdigit() and fields[2].isdigit() and fields[4].isdigit()):
        return None
    return int(fields[1]), int(fields[2]), 0 if fields[3] == b"-" else fields[3].count(b",") + 1, int(fields[4])


def _choices(lines: list[bytearray]) -> list[ResumedChoice]:
    """Empty unless each choice's ids begin at 0 and have no gap.

    Ids that brought no event may come a second time: a worker that goes on may generate them anew.
    """
    told: dict[int, list[int]] = {}
    delivered: dict[int, int] = {}
    ended: set[int] = set()
    try:
        for choice, position, ids, events, last in map(_read, lines):
            so_far = told.setdefault(choice, [])
            if not delivered.get(choice, 0) <= position <= len(so_far) or choice >= CHOICES_PER_REQUEST:
                return []
            so_far[position:] = ids
            if events:
                delivered[choice] = len(so_far)
            if last:
                ended.add(choice)
    except ValueError:
        return []
    numbers = range(max(told, default=-1) + 1)
    return [_choice(told.get(at, []), delivered.get(at), ended=at in ended) for at in numbers]


def _choice(ids: list[int], delivered: int | None, *, ended: bool) -> ResumedChoice:
    """Without `delivered` where it says nothing more: all of some ids, or no event at all."""
    if ids and (delivered := delivered or 0) == len(ids):
        delivered = None
    return ResumedChoice(ids=ids, ended=ended, delivered=delivered)


def _read(line: bytearray) -> tuple[int, int, list[int], int, bool]:
    fields = bytes(line[2:]).split()
    choice, (position, ids, *rest) = (0, fields[1:]) if fields[0] == b"p" else (int(fields[1]), fields[2:])
    new = [] if ids == b"-" else [int(token) for token in ids.split(b",")]
    return choice, int(position), new, int(rest[0]) if rest else 1, b"end" in rest
