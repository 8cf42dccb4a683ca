"""Reads YAML files of one or more objects, as kubectl does, and reports where a fault is: file, document, field.

YAML is read as Kubernetes reads it, limited to what JSON can express (`yaml_loader`). Known hole: `y`, `on`, `no` and
the like are booleans, as in Kubernetes; quote them.
"""

import sys
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from paceline_core.errors import InvalidInput
from paceline_core.objects import KINDS, AcceleratorProfile, AnyObject, FieldError, ManifestError, validate
from paceline_core.units import truncate
from paceline_core.yaml_loader import JSONLoader

FILE_LIMIT: Final = 4 << 20
STANDARD_INPUT: Final = Path("-")
"""The name for standard input, as in `kubectl apply -f -`."""


@dataclass(frozen=True, slots=True)
class ParsedManifest:
    """One checked object, its document, and where that is: `chat.yaml, document 2 (Tenant local)`."""

    found: AnyObject
    document: dict[str, Any]
    context: str


@dataclass(frozen=True, slots=True)
class ManifestFile:
    """The contents of a text: the objects without faults, and the faults of all others."""

    manifests: list[ParsedManifest]
    faults: list[FieldError]


def load_manifests(path: Path) -> ManifestFile:
    """All objects and faults of a file. Raises InvalidInput if it is unreadable or empty."""
    return survey(_text(path), str(path))


def survey(text: str, name: str) -> ManifestFile:
    """All objects and faults of a text; `name` is its name in messages."""
    documents, broken = _documents(text, name)
    found: list[ParsedManifest] = []
    faults: list[FieldError] = []
    for context, document in documents.items():
        try:
            found.append(ParsedManifest(check(document), document, context))
        except ManifestError as error:
            faults += [_placed(problem, context) for problem in error.problems]
    first: dict[str, str] = {}
    for context, document in documents.items():
        if (place := _place(document)) in first:
            twin = FieldError("metadata.name", f"stands already in {first[place]}; rename one of them")
            faults.append(_placed(twin, context))
        elif place:
            first[place] = context
    faults += broken
    if not found and not faults:
        raise InvalidInput(name, "holds no object; write at least one InferenceService")
    return ManifestFile(found, faults)


def check(document: Any) -> AnyObject:
    """Parse one manifest. Raises ManifestError with every faulty field, or else with every broken rule."""
    from paceline_core.cel import violations  # noqa: PLC0415 - takes 0.2 s, only needed to check manifests

    found = validate(document)
    if problems := violations(found):
        raise ManifestError(problems)
    return found


def _documents(text: str, name: str) -> tuple[dict[str, Any], list[FieldError]]:
    """The documents that are not empty, by context, up to a YAML error, which becomes a fault."""
    found: dict[str, Any] = {}
    try:
        for number, document in enumerate(load_documents(text, name), start=1):
            if document is not None:
                found[f"{name}, document {number}{_title(document)}"] = document
    except InvalidInput as error:
        return found, [FieldError(error.field, error.message)]
    return found, []


def load_documents(text: str, name: str) -> Iterator[Any]:
    """The documents of a YAML text as plain data, unchecked; None for an empty one. Raises InvalidInput."""
    try:
        yield from yaml.load_all(text, Loader=JSONLoader)
    except yaml.MarkedYAMLError as error:
        line = f" at line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InvalidInput(name, f"is not YAML{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise InvalidInput(name, f"is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise InvalidInput(name, "is nested too deeply to be a manifest") from None


def _text(path: Path) -> str:
    try:
        with nullcontext(sys.stdin.buffer) if path == STANDARD_INPUT else path.open("rb") as file:
            content = file.read(FILE_LIMIT + 1)
        if len(content) > FILE_LIMIT:
            raise InvalidInput(str(path), f"is over {FILE_LIMIT >> 20} MiB, too large for a manifest")
        return content.decode()
    except OSError as error:
        raise InvalidInput(str(path), f"cannot be read ({error.strerror or error})") from None
    except UnicodeDecodeError:
        raise InvalidInput(str(path), "is not text in UTF-8") from None


def _placed(problem: FieldError, context: str) -> FieldError:
    return FieldError(f"{context}: {problem.field}" if problem.field else context, problem.message)


def _title(document: Any) -> str:
    if not isinstance(document, dict):
        return ""
    metadata = document.get("metadata")
    words = (document.get("kind"), metadata.get("name") if isinstance(metadata, dict) else None)
    title = " ".join(truncate(word) for word in words if isinstance(word, str) and word)
    return f" ({title})" if title else ""


def _place(document: Any) -> str:
    """Kind, namespace and name, which no two documents share; "" if they cannot be read."""
    match document:
        case {"kind": str(kind), "metadata": {"name": str(name), **rest}} if kind in KINDS:
            namespace = "" if KINDS[kind] is AcceleratorProfile else rest.get("namespace", "default")
            return f"{kind} {namespace}/{name}"
    return ""
