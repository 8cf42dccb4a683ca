"""Names explain themselves: one meaning a class name, standard words in identifiers, and no glossary term unused."""

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.every import every
from tests.repo.test_layout import PACKAGES, ROOT, SOURCES

HOMONYMS = {"Backend", "Launch", "Usage"}
"""Class names with more than one meaning: a route's and the engine's backend, each kernel's launch, a tenant's and
OpenAI's usage."""
PICTURE = re.compile(
    "calm|desks?|eldest|floors?|glance|guests?|hands|hedg(?:es?|ed|ing)|hops?|lobby|lookout|mended|nobody|pictures?|purse"
    "|quarrels?|seats|shelf|somebody|strange|told|whoever|wish(?:es|ed)?"
)
"""Words that a reader must first learn the meaning of. The glossary has the terms to use in their place."""
STORED = {"wish"}
"""Field names of decision logs, which older logs hold too."""
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_TERM = re.compile(r"^- \*\*(.+?)\*\*(?: \((.+?)\))? (?:is|are) ", re.MULTILINE)


def classes() -> dict[str, list[str]]:
    """Public class names, and the modules that define them."""
    found = defaultdict(list)
    for path in SOURCES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(str(path.relative_to(ROOT)))
    return found


def identifiers(source: Path) -> Iterator[str]:
    """Names that a module defines or reads, except those of `math`: variables, attributes, parameters, functions."""
    nodes = list(ast.walk(ast.parse(source.read_text())))
    imported = {
        a.name for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "math" for a in node.names
    }
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "math":
            continue
        for field in ("id", "attr", "arg", "name"):
            if isinstance(name := getattr(node, field, None), str) and name not in imported | STORED:
                yield name


def test_no_public_class_name_has_two_meanings() -> None:
    shared = {name: paths for name, paths in classes().items() if len(paths) > 1}
    assert {name: paths for name, paths in shared.items() if name not in HOMONYMS} == {}
    assert shared.keys() >= HOMONYMS, "an exception that nothing needs"


def test_no_module_is_called_nouns() -> None:
    assert [path for path in SOURCES if path.name == "nouns.py"] == []


@every(SOURCES, lambda path: str(path.relative_to(ROOT)))
def test_no_identifier_is_a_picture(source: Path) -> None:
    pictures = {
        name for name in identifiers(source) if any(PICTURE.fullmatch(word.lower()) for word in _WORD.findall(name))
    }
    assert not pictures, ", ".join(sorted(pictures))


def test_every_term_of_the_glossary_is_in_use() -> None:
    glossary = ROOT / "docs" / "glossary.md"
    terms = [(term, other or term) for term, other in _TERM.findall(glossary.read_text())]
    assert len(terms) > 50
    listed = subprocess.run(["git", "ls-files", "*.md", *map(str, PACKAGES)], cwd=ROOT, check=True, capture_output=True)
    paths = [ROOT / name for name in listed.stdout.decode().split() if name.endswith((".py", ".md"))]
    text = " ".join(path.read_text().lower() for path in paths if path != glossary)
    words = re.sub(r"[_\-\s]+", " ", text)
    unused = [
        term for term, other in terms if not any(re.sub(r"[_\-\s]+", " ", t.lower()) in words for t in (term, other))
    ]
    assert unused == []
