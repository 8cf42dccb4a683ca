"""Rules over a document that has faults: a rule that would look at a faulty field is left out, all others are told.

Who asks a map for a faulty field, for one that is absent where another is misspelt (it may be that one), or for all
fields of a map with faults, meets `Doubt`. So what is told stands whatever becomes of the faults.
Hole: a rule about many values is left out where the way to one of them is in doubt.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NoReturn

from paceline_core.objects.problems import Problem
from paceline_core.objects.rules.rule import Rule, broken
from paceline_core.objects.schema import Loc


class Doubt(Exception):
    """A rule has looked at what is faulty."""


class Veiled(dict[str, Any]):
    """A map with faults: those of the fields in `faulty`, or, when one is `misspelt`, of any that is absent."""

    def __init__(self, fields: Mapping[str, Any], faulty: Collection[str], *, misspelt: bool) -> None:
        super().__init__(fields)
        self._faulty = faulty
        self._misspelt = misspelt

    def __getitem__(self, name: str) -> Any:
        self._look(name)
        return super().__getitem__(name)

    def __contains__(self, name: object) -> bool:
        self._look(name)
        return super().__contains__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """As of any map."""
        self._look(name)
        return super().get(name, default)

    def keys(self) -> NoReturn:
        """All fields are never known."""
        raise Doubt

    def _look(self, name: object) -> None:
        if name in self._faulty or (self._misspelt and not super().__contains__(name)):
            raise Doubt

    __iter__ = items = values = __len__ = keys  # each of them raises


def surely_broken(
    rules: Iterable[Rule], document: Any, faults: Iterable[Loc], misspelt: Iterable[Loc]
) -> Iterator[Problem]:
    """The rules that plain JSON data with faults at these places breaks all the same.

    `misspelt`: those of them that are fields nobody knows.
    """
    by_map: defaultdict[Loc, set[str]] = defaultdict(set)
    for loc in filter(None, map(_field, faults)):
        by_map[loc[:-1]].add(str(loc[-1]))
    veiled = _veil(document, by_map, {loc[:-1] for loc in misspelt}, ())
    for rule in rules:
        try:
            yield from broken([rule], veiled)
        except Doubt:
            continue


def _field(loc: Loc) -> Loc:
    """An entry of a list makes the whole list doubtful."""
    while loc and isinstance(loc[-1], int):
        loc = loc[:-1]
    return loc


def _veil(value: Any, faulty: Mapping[Loc, Collection[str]], misspelt: Collection[Loc], loc: Loc) -> Any:
    if isinstance(value, list):
        return [_veil(item, faulty, misspelt, (*loc, index)) for index, item in enumerate(value)]
    if not isinstance(value, dict):
        return value
    fields = {name: _veil(item, faulty, misspelt, (*loc, name)) for name, item in value.items()}
    if loc not in faulty and loc not in misspelt:
        return fields
    return Veiled(fields, faulty.get(loc, ()), misspelt=loc in misspelt)
