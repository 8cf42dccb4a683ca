"""Parses documents in two ways: `validate` for what people write, `read` for what an API server has accepted.

`validate` refuses each field that the API server itself would refuse, and unknown fields, which the server silently
drops. `read` ignores unknown fields, so that an older reader accepts a newer object. Neither evaluates rules across
fields: `paceline_core.cel` does that once every field is well-formed, as the server does.
"""

import json
from collections.abc import Iterator
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from paceline_core.objects.accelerator import AcceleratorProfile
from paceline_core.objects.field_errors import FieldError, ManifestError, did_you_mean, explain, misread, shown
from paceline_core.objects.metadata import API_VERSION, GROUP, Object
from paceline_core.objects.route import InferenceRoute
from paceline_core.objects.schema import Loc, Schema, child, field_path, structural
from paceline_core.objects.service import InferenceService
from paceline_core.objects.tenant import Tenant
from paceline_core.units import QUANTITY_PATTERN, counted, quantity, truncate

AnyObject = InferenceService | Tenant | InferenceRoute | AcceleratorProfile
O = TypeVar("O", bound=Object)  # noqa: E741 - an object's type

KINDS: Final[dict[str, type[AnyObject]]] = {
    kind.__name__: kind for kind in (InferenceService, Tenant, InferenceRoute, AcceleratorProfile)
}


def validate(document: Any) -> AnyObject:
    """Check one manifest as written by a person. Raises ManifestError with every faulty field."""
    kind = _kind_of(document)
    text = _as_json(document)
    # pydantic has different messages for these, or none
    own: dict[Loc, str] = {}
    if (version := document.get("apiVersion")) != API_VERSION:
        own["apiVersion",] = _unserved(version)
    for loc in _nulls(document.get("spec", {}), ("spec",)):
        own[loc] = "is empty: give it a value, or remove the line"
    try:
        found = kind.model_validate_json(text, strict=True, by_alias=True, by_name=False)
    except ValidationError as error:
        raise ManifestError(_faults(kind, own, error.errors(include_url=False))) from None
    if problems := _faults(kind, own, []):
        raise ManifestError(problems)
    return found


def read(kind: type[O], document: Any) -> O:
    """Parse an object from an API server, ignoring unknown fields. Raises ManifestError if it cannot be parsed.

    An invalid status counts as none: a controller's observation must not hide the user's spec.
    """
    try:
        return kind.model_validate_json(_as_json(document), by_alias=True, by_name=False, extra="ignore")
    except ValidationError as error:
        if all(fault["loc"][:1] == ("status",) for fault in error.errors()):
            return read(kind, {name: part for name, part in document.items() if name != "status"})
        raise ManifestError(explain(error.errors(include_url=False), kind)) from None


def _faults(kind: type[AnyObject], own: dict[Loc, str], errors: list[ErrorDetails]) -> list[FieldError]:
    """Every faulty field: those in `own`, with their message, and those that pydantic finds elsewhere."""
    first = [FieldError(field_path(structural(kind), loc), message) for loc, message in own.items()]
    reported = {problem.field for problem in first}
    return [*first, *(problem for problem in explain(errors, kind) if problem.field not in reported)]


def _unserved(version: object) -> str:
    if version is None:
        return f"is required; write {API_VERSION}"
    message = (
        f"{truncate(repr(version))} is not served"
        if isinstance(version, str)
        else f"must be a string, not {shown(version)}"
    )
    return f"{message}; write {API_VERSION}"


def _kind_of(document: Any) -> type[AnyObject]:
    if not isinstance(document, dict):
        raise ManifestError([FieldError("", "must be a map with apiVersion, kind, metadata and spec")])
    name = document.get("kind")
    if name is None:
        *most, last = KINDS
        raise ManifestError([FieldError("kind", f"is required; write {', '.join(most)} or {last}")])
    if not isinstance(name, str):
        message = f"must be one of {', '.join(KINDS)}, not {shown(name)}{misread(name)}"
        raise ManifestError([FieldError("kind", message)])
    if name not in KINDS:
        hint = did_you_mean(name, list(KINDS))
        raise ManifestError([FieldError("kind", f"{truncate(repr(name))} is not one of {', '.join(KINDS)}{hint}")])
    version = document.get("apiVersion")
    if isinstance(version, str) and not version.startswith(f"{GROUP}/"):
        raise ManifestError([FieldError("apiVersion", _unserved(version))])
    return KINDS[name]


def _as_json(document: Any) -> str:
    """JSON, for which alone pydantic is strict and exact: a list may become a tuple, and "1" is no number."""
    try:
        return json.dumps(document)
    except (TypeError, ValueError, RecursionError) as error:
        raise ManifestError([FieldError("", f"holds what JSON cannot express ({error})")]) from None


def _nulls(value: Any, loc: tuple[str | int, ...]) -> Iterator[Loc]:
    """A server drops a null silently; here it is nearly always a line with a forgotten value."""
    if value is None:
        yield loc
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _nulls(item, (*loc, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _nulls(item, (*loc, index))


_MIN_BYTES: Final = 1 << 20


def without_unit(kind: type[Object], document: Any) -> Iterator[FieldError]:
    """The fields of a valid document with fewer bytes than a mebibyte and no unit; 0 is intended."""
    schema = structural(kind)
    for loc, value in _quantities(schema, document, ()):
        if value.isdecimal() and 0 < quantity(value) < _MIN_BYTES:
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
