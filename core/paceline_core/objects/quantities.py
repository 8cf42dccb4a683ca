"""Quantities of bytes that were probably not meant so: digits alone are bytes, and hardly anything has 80 of them."""

from collections.abc import Iterator
from typing import Any, Final

from paceline_core.objects.field_errors import FieldError
from paceline_core.objects.metadata import Object
from paceline_core.objects.schema import Loc, Schema, child, field_path, structural
from paceline_core.units import QUANTITY_PATTERN, counted, quantity

_LEAST: Final = 1 << 20


def without_unit(kind: type[Object], document: Any) -> Iterator[FieldError]:
    """The fields of a valid document that hold fewer bytes than a mebibyte, written without a unit; 0 is meant so."""
    schema = structural(kind)
    for loc, value in _quantities(schema, document, ()):
        if value.isdecimal() and 0 < quantity(value) < _LEAST:
            message = f"{value!r} is {counted(quantity(value), 'byte')}; write a unit, as in 16Gi or 3350G"
            yield FieldError(field_path(schema, loc), message)


def _quantities(node: Schema, value: Any, loc: Loc) -> Iterator[tuple[Loc, str]]:
    if isinstance(value, str):
        if node.get("pattern") == QUANTITY_PATTERN:
            yield loc, value
        return
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for part, entry in entries:
        if below := child(node, part):
            yield from _quantities(below, entry, (*loc, part))
