"""The corpus: manifests that must be taken, and others with one fault each, whose header says what is refused."""

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from paceline_core.manifests import load_documents
from paceline_core.objects import KINDS
from paceline_core.objects.metadata import Object

_FOLDER = Path(__file__).parents[1] / "corpus"


@dataclass(frozen=True, slots=True)
class Invalid:
    """A document with one fault.

    `server` says what an API server alone does: refuses (naming the field), prunes (drops the fault without a word), or
    serves no such kind (there is no address to send it to).
    """

    name: str
    document: dict[str, Any]
    field: str
    message: str
    server: str


@cache
def valid() -> dict[str, dict[str, Any]]:
    """Name -> document."""
    return {path.stem: _document(path) for path in sorted((_FOLDER / "valid").glob("*.yaml"))}


@cache
def invalid() -> tuple[Invalid, ...]:
    """Every faulty document with its header."""
    return tuple(_invalid(path) for path in sorted((_FOLDER / "invalid").glob("*.yaml")))


def kind_of(document: dict[str, Any]) -> type[Object]:
    """The model of a document's kind."""
    return KINDS[document["kind"]]


def _document(path: Path) -> dict[str, Any]:
    (document,) = load_documents(path.read_text(encoding="utf-8"), path.name)
    assert isinstance(document, dict)
    return document


def _invalid(path: Path) -> Invalid:
    lines = (line.removeprefix("# ") for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# "))
    header = dict(line.split(": ", 1) for line in lines)
    return Invalid(path.stem, _document(path), header["field"], header["message"], header.get("server", "refuses"))
