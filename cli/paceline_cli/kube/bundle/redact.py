"""Removes secrets and prompts from objects, logs and metrics of a bundle.

Objects: values of variables, arguments, headers, filters and of unknown annotations are replaced, field managers are
dropped. Every value hidden in this way is remembered and replaced wherever else it occurs (such as in a log that prints
its environment). Texts: keys, tokens and certificates are found by their forms, and fields of log lines that could hold
prompts are removed. Secrets need no rule: none is ever read.
A value that is also the name, the namespace or a label of some object (Helm writes `release-name: paceline`) is not a
secret: it is hidden in its place and kept elsewhere.
Known hole: a value of under 8 characters, over 512 or of only digits is hidden only in its place.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from paceline_core.objects.naming import ANNOTATION_PAUSE_REASON, ANNOTATION_PAUSE_UNTIL, ANNOTATION_UPGRADE

HIDDEN: Final = "<redacted>"
LEAST: Final = 8
MOST: Final = 512
OURS: Final = ("PACELINE_", "paceline_")
VISIBLE_ANNOTATIONS: Final = frozenset(
    {
        ANNOTATION_PAUSE_UNTIL,
        ANNOTATION_PAUSE_REASON,
        ANNOTATION_UPGRADE,
        "paceline.dev/inputs",
        "deployment.kubernetes.io/revision",
    }
)
PROMPTS: Final = frozenset(
    {"prompt", "prompts", "messages", "content", "input", "inputs", "text", "completion", "body", "authorization"}
)
_DROPPED: Final = frozenset({"managedFields"})
_WORDS: Final = frozenset({"args", "command"})
_VALUES: Final = frozenset({"headers", "config", "data", "stringData", "binaryData"})
_NAMED: Final = frozenset({"env", "httpHeaders"})
_FORMS: Final = tuple(
    (re.compile(pattern, re.IGNORECASE), into)
    for pattern, into in (
        (r"-----BEGIN [A-Z ]+-----[^\"'-]*(-----END [A-Z ]+-----)?", HIDDEN),
        (r"\bpl_[a-z2-7]{8}_[a-z2-7]{4,}", f"pl_{HIDDEN}"),
        (r"\beyJ[\w-]{8,}\.[\w-]+(\.[\w-]*)?", HIDDEN),
        (r"\b(bearer|basic)\s+[\w.~+/=-]{8,}", rf"\1 {HIDDEN}"),
        (r"\b(x-paceline-internal-token|authorization|x-api-key)(\W{1,4})[^\s\"',}]+", rf"\1\2{HIDDEN}"),
        (r"\b(hf_|sk-|ghp_|glpat-|AKIA)[\w-]{12,}", HIDDEN),
        (r"://[^/\s@\"']+@", f"://{HIDDEN}@"),
    )
)


class Redactor:
    """First learns the hidden values from all objects; then cleans objects and texts."""

    def __init__(self) -> None:
        self._literals: dict[str, str] = {}  # the value, and its JSON form
        self._public: set[str] = set()

    def learn(self, documents: Sequence[Any]) -> None:
        self._public.update(_identifiers(documents))
        for document in documents:
            self._hide(document)

    def objects(self, documents: Sequence[Any]) -> str:
        """Cleaned as JSON, where quotes and line ends are escaped; the plain form of a value could match structure."""
        text = json.dumps([self._hide(document) for document in documents], indent=1)
        return _clean(text, self._literals.values())

    def text(self, text: str) -> str:
        return _clean(text, (*self._literals, *self._literals.values()))

    def log(self, text: str) -> str:
        """Clean a log line by line: lines that are JSON lose the fields that could hold prompts."""
        lines = text.splitlines()
        for at, line in enumerate(lines):
            with suppress(ValueError, RecursionError):
                if line.startswith("{"):
                    lines[at] = json.dumps(_without_prompts(json.loads(line)), ensure_ascii=False)
        return self.text("\n".join(lines))

    def _hide(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._field(key, item) for key, item in value.items() if key not in _DROPPED}
        return [self._hide(item) for item in value] if isinstance(value, list) else value

    def _field(self, key: str, value: Any) -> Any:
        if key == "annotations" and isinstance(value, dict):
            return {name: text if name in VISIBLE_ANNOTATIONS else self._gone(text) for name, text in value.items()}
        if key in _VALUES and isinstance(value, dict):
            return {name: self._gone(item) for name, item in value.items()}
        if key in _WORDS and isinstance(value, list):
            return [self._word(word) for word in value]
        if key in _NAMED and isinstance(value, list):
            return [self._named(item) for item in value]
        return self._hide(value)

    def _named(self, item: Any) -> Any:
        if not isinstance(item, dict) or "value" not in item or str(item.get("name", "")).startswith(OURS):
            return self._hide(item)
        return {**item, "value": self._gone(item["value"])}

    def _word(self, word: Any) -> Any:
        """Hide an argument's value and keep its name: `--api-key=<redacted>`."""
        name, equals, value = str(word).partition("=")
        if not name.startswith("-"):
            return str(word) if name.startswith(OURS) else self._gone(word)
        return f"{name}={self._gone(value)}" if equals else name

    def _gone(self, value: Any) -> str:
        secret = isinstance(value, str) and LEAST <= len(value) <= MOST and not value.isdigit()
        if secret and value not in self._public:
            self._literals[value] = json.dumps(value)[1:-1]
        return HIDDEN


def _clean(text: str, literals: Iterable[str]) -> str:
    for literal in literals:
        text = text.replace(literal, HIDDEN)
    for form, into in _FORMS:
        text = form.sub(into, text)
    return text


def _identifiers(value: Any) -> Iterator[str]:
    """Names, namespaces and label values of the objects in `value`."""
    if isinstance(value, list | tuple):
        for item in value:
            yield from _identifiers(item)
    elif isinstance(value, dict) and isinstance(metadata := value.get("metadata"), dict):
        labels = metadata.get("labels") or {}
        named = (metadata.get("name"), metadata.get("namespace"), *labels.values())
        yield from (text for text in named if isinstance(text, str))


def _without_prompts(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {k: HIDDEN if k.lower() in PROMPTS else _without_prompts(v) for k, v in value.items()}
    return [_without_prompts(item) for item in value] if isinstance(value, list) else value
